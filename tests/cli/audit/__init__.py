"""Tests of `pairgrad audit`: the functions of a user in a folder of theirs, and the worker in a process of its own or in this one."""
