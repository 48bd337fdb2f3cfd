"""torchkin: forward kinematics of robots."""

from census.package import Package

package = Package("torchkin", "0.1.1", family="geometry and pose", group="geometry", modules=["torchkin"])

JOINTS = """
<joint name="j1" type="revolute"><parent link="base"/><child link="l1"/><origin xyz="0 0 0.3" rpy="0 0.2 0"/><axis xyz="0 0 1"/>
  <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="j2" type="revolute"><parent link="l1"/><child link="l2"/><origin xyz="0.5 0 0.1" rpy="0.4 0 0.1"/><axis xyz="0.6 0.8 0"/>
  <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="f1" type="fixed"><parent link="l2"/><child link="mid"/><origin xyz="0.1 0.2 0" rpy="0 0.3 0"/></joint>
<joint name="j3" type="prismatic"><parent link="mid"/><child link="l3"/><origin xyz="0.2 0 0.1" rpy="0.1 0.2 0.3"/><axis xyz="1 0 0"/>
  <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="j4" type="continuous"><parent link="l2"/><child link="l4"/><origin xyz="0 0.4 0" rpy="0 0 0"/><axis xyz="0 1 0"/></joint>
<joint name="f2" type="fixed"><parent link="l3"/><child link="tool"/><origin xyz="0 0 0.2" rpy="0.5 0 0"/></joint>
"""


def kinematics(*links):
    """Forward kinematics of an arm with revolute, prismatic and fixed joints."""
    import tempfile
    from pathlib import Path

    import torch
    import torchkin

    names = ("base", "l1", "l2", "mid", "l3", "l4", "tool")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arm.urdf"
        file.write_text(f'<robot name="arm">{"".join(f"""<link name="{name}"/>""" for name in names)}{JOINTS}</robot>')
        robot = torchkin.Robot.from_urdf_file(str(file), torch.float64)
    return torchkin.get_forward_kinematics_fns(robot, list(links) or None)


def angles(rows=2):
    """Ordinary states of the joints."""
    import torch

    return torch.randn(rows, 4, dtype=torch.float64)


@package.case("tool", seconds=30)
def _tool():
    return kinematics("tool")[0], angles(1)


@package.case("all links", seconds=30)
def _all_links():
    return kinematics()[0], angles(1)


@package.case("two links on different branches and the base, first derivatives", seconds=20, second_order=False)
def _branches():
    return kinematics("l4", "mid", "base")[0], angles(2)


@package.case("tool at angles near 0.003", seconds=60, second_order=False)
def _small():
    return kinematics("tool")[0], 0.003 * angles(1)


package.finding(
    "torchkin-second-derivative",
    kind="second derivative",
    where="torchkin/forward_kinematics.py:90",
    what="The backward holds the poses of links that were not asked for fixed, so that second derivatives are wrong without an error; "
    "they are right if all links are asked for.",
    size="0.4 of the second derivative",
    cases=["tool"],
)
package.finding(
    "torchkin-small-angle",
    kind="value",
    where="torchkin/joint.py:259",
    what="Below joint angles of 0.005 the rotation is an approximation of the exponential, while the backward is the derivative of the exact one.",
    size="4e-6 of the gradient",
    cases=["tool at angles near 0.003"],
)
