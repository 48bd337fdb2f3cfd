"""catalyst: losses and training loops."""

from census.package import Package

package = Package("catalyst", "22.4", family="losses and metric learning", group="vision", modules=["catalyst"])


@package.case("WARP loss")
def warp():
    import torch
    from catalyst.contrib.losses.recsys import WARPLoss

    targets = torch.eye(5, dtype=torch.float64)[:3]
    return lambda x: WARPLoss()(x, targets), torch.randn(3, 5, dtype=torch.float64)


@package.case("WARP loss with one trial")
def warp_one():
    import torch
    from catalyst.contrib.losses.recsys import WARPLoss

    targets = torch.eye(5, dtype=torch.float64)[:3]
    return lambda x: WARPLoss(max_num_trials=1)(x, targets), torch.randn(3, 5, dtype=torch.float64)
