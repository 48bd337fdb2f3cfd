"""What a pickle can do to whoever loads it."""

import os


class Malicious:
    """Makes the folder `place` when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)
