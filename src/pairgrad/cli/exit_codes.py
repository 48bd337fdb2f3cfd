"""What the shell is told when a command ends."""

from __future__ import annotations

DONE, MISTAKE, BUG, INTERRUPTED = 0, 2, 70, 130
GENERAL = {
    DONE: "Done.",
    MISTAKE: "Could not start: a mistake in the command, its files or what is installed. The message says what to do.",
    BUG: "A bug of pairgrad. The traceback is shown.",
    INTERRUPTED: "Stopped by Ctrl-C or a signal.",
}
AUDIT = {
    0: "Coherent, or as declared.",
    1: "Does not pass: incoherent, a wrong second derivative, a jump, not re-entrant, or an estimator that is not declared.",
    2: "Could not tell, because of the function or of time, or a mistake. The message says which.",
}
PROVE = {1: "A proof failed."}
PLAN = {1: "No layout fits the memory."}
DOCTOR = {1: "The self-check failed, here or on the device, or something that is installed is broken."}
