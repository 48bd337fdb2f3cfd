"""Tests of the command line.

`command` runs it, in this process or in one of its own; `several` under torchrun; `audit` is a folder of its own.
"""
