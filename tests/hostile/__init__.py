"""Hostile input to the whole public interface: never a wrong number, never a hang or a crash, always an error that names the argument.

`values` has the hostile values of each kind of argument, `calls` the table of public callables with a valid call of each, `engine` puts one into the other
and judges what comes back. A new public callable gets one entry in `calls`; a new way to be hostile gets one line in `values`.
"""
