"""Joint angles below 0.005: value and gradient beside Rodrigues' formula. pip install torchkin==0.1.1"""

import torch
import torchkin

LIMIT = '<limit lower="-3" upper="3" effort="1" velocity="1"/>'
with open("arm.urdf", "w") as file:
    file.write(
        '<robot name="arm"><link name="base"/><link name="tool"/><joint name="j" type="revolute"><parent link="base"/><child link="tool"/>'
        f'<origin xyz="0 0 0" rpy="0 0 0"/><axis xyz="0 0 1"/>{LIMIT}</joint></robot>'
    )
robot = torchkin.Robot.from_urdf_file("arm.urdf", torch.float64)
forward = torchkin.get_forward_kinematics_fns(robot, ["tool"])[0]


def sine(angle):
    """The element of the rotation about z that is sin(angle)."""
    return forward(torch.stack([angle]).reshape(1, 1))[0][0, 1, 0]


borne_out = False
for number in (0.002, 0.004, 0.006):
    angle = torch.tensor(number, dtype=torch.float64, requires_grad=True)
    value = sine(angle)
    (supplied,) = torch.autograd.grad(value, angle)
    with torch.no_grad():
        of_value = float(sine(angle + 1e-5) - sine(angle - 1e-5)) / 2e-5
    exact = float(angle.detach().cos())
    off = abs(float(value - angle.sin()))
    print(
        f"angle {number}: sine off by {off:.1e}; derivative: supplied {float(supplied):.10f}, of the value {of_value:.10f}, cos(angle) {exact:.10f}"
    )
    borne_out |= number < 0.005 and abs(float(supplied) - of_value) > 1e-7 and abs(exact - of_value) > 1e-7 and off > 1e-10
raise SystemExit(0 if borne_out else 1)
