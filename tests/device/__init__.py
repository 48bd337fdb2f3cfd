"""Devices that this machine does not have: what the library does to them, found without one."""
