"""Second derivatives of forward kinematics: the tool alone beside all links. pip install torchkin==0.1.1"""

import torch
import torchkin

NAMES = ("base", "l1", "l2", "tool")
AXES = ("0 0 1", "0.6 0.8 0", "1 0 0")
LIMIT = '<limit lower="-3" upper="3" effort="1" velocity="1"/>'
links = "".join(f'<link name="{name}"/>' for name in NAMES)
joints = "".join(
    f'<joint name="j{i}" type="revolute"><parent link="{NAMES[i]}"/><child link="{NAMES[i + 1]}"/>'
    f'<origin xyz="0.4 0.1 0.3" rpy="0.1 0.2 0.3"/><axis xyz="{axis}"/>{LIMIT}</joint>'
    for i, axis in enumerate(AXES)
)
with open("arm.urdf", "w") as file:
    file.write(f'<robot name="arm">{links}{joints}</robot>')
robot = torchkin.Robot.from_urdf_file("arm.urdf", torch.float64)
alone = torchkin.get_forward_kinematics_fns(robot, ["tool"])[0]
together = torchkin.get_forward_kinematics_fns(robot)[0]
x, v = torch.tensor([[[0.4, -0.7, 1.1]], [[1.0, 0.5, -0.8]]], dtype=torch.float64)


def gradient(f, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(f(leaf)[-1].sin().sum(), leaf, create_graph=True)[0], leaf


def second(f):
    made, leaf = gradient(f, x)
    return float((torch.autograd.grad((made * v).sum(), leaf)[0] * v).sum())


same = float((gradient(alone, x)[0] - gradient(together, x)[0]).abs().max())
wide, narrow = (float(((gradient(alone, x + h * v)[0] - gradient(alone, x - h * v)[0]) * v).sum()) for h in (2e-3, 1e-3))
true = (8 * narrow - wide) / 12e-3
print(
    f"gradients agree to {same:.0e}; second derivative: supplied {second(alone):.6f} (tool), {second(together):.6f} (all), true {true:.6f}"
)
raise SystemExit(0 if same < 1e-12 and abs(second(together) - true) < 1e-6 and abs(second(alone) - true) > 1e-3 * abs(true) else 1)
