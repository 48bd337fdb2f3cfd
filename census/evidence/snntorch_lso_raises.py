"""surrogate.LSO applies StochasticSpikeOperator with an argument missing, and LeakySpikeOperator.backward returns one
gradient for two arguments: both raise.

pip install snntorch==1.0.0
"""

import torch
from snntorch import surrogate

x = torch.tensor([-0.5, 0.3], requires_grad=True)
raised = []
for name, run in (
    ("surrogate.LSO(0.1)(x)", lambda: surrogate.LSO(slope=0.1)(x)),
    ("LeakySpikeOperator.apply(x, 0.1).sum().backward()", lambda: surrogate.LeakySpikeOperator.apply(x, 0.1).sum().backward()),
):
    try:
        run()
        print(f"{name}: runs")
    except (TypeError, RuntimeError) as error:
        raised.append(name)
        print(f"{name}: supplied {type(error).__name__}: {str(error)[:110]}, true [0.1, 1.0]")
raise SystemExit(0 if len(raised) == 2 else 1)
