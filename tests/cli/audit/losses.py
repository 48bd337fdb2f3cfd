"""The file `losses.py` of a user."""

from __future__ import annotations

LOSSES = '''
    """Losses of a user, some of them wrong."""
    import ctypes, os, subprocess, sys, time
    import torch

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale=1.0):
            ctx.save_for_backward(x)
            return x.sin() * scale

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * 1.25, None

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    def bad(x):
        return Sine.apply(x, 1.0)

    def good(x, scale: float = 1.0):
        return x.sin() * scale

    def ratio(x, y, *, power=1):
        return (x / y) ** power

    def only(x, /, y):
        return x * y

    def step(x):
        return Step.apply(x)

    def drops(x):
        return (x * x.detach()).sum()

    def counts(x, calls=[]):
        calls.append(1)
        return x * len(calls)

    def raises(x):
        raise ArithmeticError("the user's own words")

    def raises_inside(x):
        return torch.linalg.cholesky(-x)

    def raises_later(x):
        global calls
        calls += 1
        if calls > 10:
            raise ArithmeticError("once too often")
        return x.sin()

    def nan(x):
        return x * float("nan")

    def no_tensor(x):
        return 3.0

    def exits(x):
        sys.exit(5)

    def entropy(logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels)

    def entropy_inputs():
        return torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3), torch.tensor([0, 1, 2, 0])

    def held(x):
        return x.exp()

    held.example_inputs = {"x": torch.tensor([0.25, 0.5], dtype=torch.float64)}

    def wrong_inputs():
        return 3

    def broken_inputs():
        raise KeyError("no batch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x).tanh()

    class Needs(torch.nn.Module):
        def __init__(self, dim, heads):
            super().__init__()

    class Plain:
        pass

    net = Net()
    number = 3
    calls = 0

    def stuck(x):
        """Incoherent, and hangs after 400 calls."""
        global calls
        calls += 1
        if calls > 400:
            mark("stuck")
            time.sleep(600)
        return Sine.apply(x, 1.0)

    def deaf(x):
        """Hangs, and does not listen to an interruption."""
        word = "stuck"
        while True:
            try:
                mark(word)
                time.sleep(600)
            except KeyboardInterrupt:
                word = "swallowed"

    def mark(word):
        """On the screen and then as a file: one that waits for the file may interrupt at once, and the word is there."""
        print(word, flush=True)
        open(f"{word}.mark", "w").close()

    def leaves_a_process_behind(x, started=[]):
        if not started:
            started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
            open("pid", "w").write(str(started[0].pid))
        return x.sin()

    def interrupts(x):
        raise KeyboardInterrupt

    async def later(x):
        return x.sin()

    def yields(x):
        yield x.sin()

    def constant():
        return torch.ones(2)

    def crashes(x):
        global calls
        calls += 1
        if calls > 40:
            ctypes.string_at(0)
        return x.sin()
'''
