"""The paper's studies as programs. Nothing in the library imports them."""
