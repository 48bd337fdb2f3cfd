"""A second derivative through sinabs' SingleSpike lacks the derivative of the surrogate gradient: a clone of the potential is saved, which has no graph.

pip install sinabs==3.1.3
"""

import torch
from sinabs.activation import Gaussian, SingleSpike

v = torch.tensor([0.3, 0.9, 1.4], requires_grad=True)
shape = Gaussian(mu=0.0, sigma=0.5)
value = SingleSpike.apply(v, 0.8, shape).sum()
(first,) = torch.autograd.grad(value, v, create_graph=True)
(supplied,) = torch.autograd.grad((value + first.sum()), v)  # a loss with the gradient in it
again = v.detach().double().requires_grad_()
gradient = shape(again, 0.8)  # the surrogate gradient, as a plain function
(second,) = torch.autograd.grad(gradient.sum(), again)
true = gradient.detach() + second
print("first derivative: supplied", [round(g, 5) for g in first.tolist()], ", true (surrogate)", [round(g, 5) for g in gradient.tolist()])
print("with the gradient in the loss: supplied", [round(g, 5) for g in supplied.tolist()], ", true", [round(g, 5) for g in true.tolist()])
borne_out = torch.allclose(first.double(), gradient, atol=1e-5) and torch.allclose(supplied.double(), gradient, atol=1e-5)
raise SystemExit(0 if borne_out and second.abs().min() > 0.1 else 1)
