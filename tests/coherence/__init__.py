"""Tests of the auditor, without anything of von Mises-Fisher but in test_realizations.

`functions`, `lines` and `training` are what is audited; `library_functions` what must not be accused; `browser` opens pages; `memory` measures tensors.
Folders: `zoo`, `tape`, `page`.
"""
