"""torchdiffeq: ordinary differential equations with adjoint gradients and events."""

from census.package import Package

package = Package(
    "torchdiffeq",
    "0.2.5",
    family="differential equations and implicit layers",
    group="solvers",
    modules=["torchdiffeq"],
    note="Adjoint gradients are the derivative to the tolerance of the integration: defects below 1e-4 of the gradient were not judged.",
)
TIGHT = {"rtol": 1e-8, "atol": 1e-10, "method": "dopri5"}


def _numbers(*numbers):
    import torch

    return tuple(torch.tensor(n, dtype=torch.float64) for n in numbers)


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def odeint_adjoint_times_state_and_parameter():
    import torch
    from torchdiffeq import odeint_adjoint

    def solution(y0, t, a):
        fixed = {"method": "rk4", "options": {"step_size": 0.02}}  # with adaptive steps the backward is linear only to the tolerance
        return odeint_adjoint(lambda t, y: a * torch.sin(t + y), y0, t, adjoint_params=(a,), **fixed)

    return solution, _numbers([0.8], [0.1, 0.21], 0.7)  # times between two steps are interpolated


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def odeint_adjoint_complex_state_and_times():
    import torch
    from torchdiffeq import odeint_adjoint

    w = torch.tensor([-0.1 + 1.0j], dtype=torch.complex128)

    def solution(t, y0):
        return torch.view_as_real(
            odeint_adjoint(lambda t, y: w * y * (1 + 0.2 * t), torch.view_as_complex(y0), t, adjoint_params=(), **TIGHT)
        )

    return solution, _numbers([0.1, 0.3, 0.5], [[0.8, 0.3]])


@package.case(effort="quick", tolerance=1e-4, seconds=300.0)
def odeint_adjoint_second_order():
    import torch
    from torchdiffeq import odeint_adjoint

    t = torch.tensor([0.0, 0.4], dtype=torch.float64)
    return lambda y0: odeint_adjoint(lambda t, y: -(y**2), y0, t, adjoint_params=(), **TIGHT)[-1] + y0**2, _numbers([0.8])


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def odeint_dopri5():
    import torch
    from torchdiffeq import odeint

    def solution(y0, a):
        t = torch.tensor([0.1, 0.3], dtype=torch.float64)
        return odeint(lambda t, y: a * torch.sin(t + y), y0, t, rtol=1e-6, atol=1e-8, options={"first_step": 0.1, "max_step": 0.1})

    return solution, _numbers([0.8, 0.3], 0.7)


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def event_time_and_state():
    import torch
    from torchdiffeq import odeint_event

    def hit(t0, y0):

        def fall(t, y):
            return torch.stack([y[1], -9.0 - 0.1 * y[1]])

        t, y = odeint_event(fall, y0, t0, event_fn=lambda t, y: y[0] - 0.2 - 0.1 * t, **TIGHT)
        return torch.cat([t.reshape(1), y[-1]])

    return hit, _numbers([0.1], [0.6, 0.4])


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def event_at_a_place_that_is_an_argument():
    import torch
    from torchdiffeq import odeint_event

    def hit(y0, ground):

        def fall(t, y):
            return torch.stack([y[1], torch.full_like(y[0], -9.0)])

        return odeint_event(fall, y0, torch.zeros(1, dtype=torch.float64), event_fn=lambda t, y: y[0] - ground, **TIGHT)[0]

    return hit, _numbers([0.6, 0.4], 0.2)


@package.case(effort="quick", tolerance=1e-4, seconds=300.0)
def event_time_second_order():
    import torch
    from torchdiffeq import odeint_event

    def hit(y0):

        def fall(t, y):
            return torch.stack([y[1], torch.full_like(y[0], -9.0)])

        return odeint_event(fall, y0, torch.zeros(1, dtype=torch.float64), event_fn=lambda t, y: y[0] - 0.2, **TIGHT)[0]

    return hit, _numbers([0.6, 0.4])


package.finding(
    "torchdiffeq-complex-times",
    kind="gradient in a configuration",
    where="torchdiffeq/_impl/adjoint.py:129",
    what="For a complex state, the adjoint gradient of the times multiplies the field with the cotangent without a conjugate.",
    size="0.6 of the gradient",
    cases=["odeint adjoint complex state and times"],
)
package.finding(
    "torchdiffeq-event-parameters",
    kind="missing gradient",
    where="torchdiffeq/_impl/odeint.py:216",
    what="Time and state of an event get no gradient for what the event function depends on besides time and state.",
    size="all of it",
    cases=["event at a place that is an argument"],
    known="https://github.com/rtqichen/torchdiffeq/issues/208",
)
package.finding(
    "torchdiffeq-event-second-derivative",
    kind="second derivative",
    where="torchdiffeq/_impl/odeint.py:193",
    what="The backward of an event takes the slopes at the event for constants, so second derivatives are wrong, and nothing raises.",
    size="all of the change of the slopes",
    cases=["event time second order"],
)
package.finding(
    "torchdiffeq-adjoint-second-derivative",
    kind="second derivative",
    where="torchdiffeq/_impl/adjoint.py:37",
    what="The backward of odeint_adjoint runs without a graph: its second derivative is dropped, silently where the loss has another term.",
    size="all of it",
    cases=["odeint adjoint second order"],
    missed=True,
    known="https://github.com/rtqichen/torchdiffeq/issues/29",
)
