"""efficientnet-pytorch: EfficientNet."""

from census.package import Package

package = Package(
    "efficientnet-pytorch", "0.7.1", family="segmentation, detection and vision", group="vision", modules=["efficientnet_pytorch"]
)


@package.case("swish")
def swish():
    import torch
    from efficientnet_pytorch.utils import MemoryEfficientSwish

    return MemoryEfficientSwish(), 2.5 * torch.randn(3, 5, dtype=torch.float64)


@package.case("swish of images in single precision")
def swish_images():
    import torch
    from efficientnet_pytorch.utils import MemoryEfficientSwish

    return MemoryEfficientSwish(), torch.randn(2, 3, 2, 2)


@package.case("a block with squeeze and excitation")
def block():
    import torch
    from efficientnet_pytorch.model import MBConvBlock
    from efficientnet_pytorch.utils import BlockDecoder, GlobalParams

    arguments = BlockDecoder.decode(["r1_k3_s11_e2_i4_o4_se0.25"])[0]
    shared = GlobalParams(batch_norm_momentum=0.99, batch_norm_epsilon=1e-3, image_size=4, width_coefficient=1.0, depth_divisor=8)
    made = MBConvBlock(arguments, shared, image_size=(4, 4)).double().eval()
    return made, torch.randn(2, 4, 4, 4, dtype=torch.float64)
