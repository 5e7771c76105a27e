"""The modules of torch.nn that a layer's text may name, and the parameters each takes, in order."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["NN_MODULES", "RECURRENT"]

RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
"""Modules that yield a tuple, and take a state as their second argument."""

_CONVOLUTION = (
    "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"
)
_TRANSPOSED = (
    "in_channels out_channels kernel_size stride padding output_padding groups bias dilation "
    "padding_mode"
)
_NORM = "num_features eps momentum affine track_running_stats bias"
_MAX_POOL = "kernel_size stride padding dilation return_indices ceil_mode"
_AVERAGE_POOL = "kernel_size stride padding ceil_mode count_include_pad divisor_override"
_RECURRENT = "input_size hidden_size num_layers bias batch_first dropout bidirectional"


def _of(names: str, parameters: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(parameters.split()) for name in names.split()}


NN_MODULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **_of("Conv1d Conv2d Conv3d", _CONVOLUTION),
        **_of("ConvTranspose1d ConvTranspose2d ConvTranspose3d", _TRANSPOSED),
        **_of("BatchNorm1d BatchNorm2d BatchNorm3d", _NORM),
        **_of("InstanceNorm1d InstanceNorm2d InstanceNorm3d", _NORM),
        **_of("LayerNorm", "normalized_shape eps elementwise_affine bias"),
        **_of("RMSNorm", "normalized_shape eps elementwise_affine"),
        **_of("GroupNorm", "num_groups num_channels eps affine bias"),
        **_of("LocalResponseNorm", "size alpha beta k"),
        **_of("MaxPool1d MaxPool2d MaxPool3d", _MAX_POOL),
        **_of("AvgPool1d", "kernel_size stride padding ceil_mode count_include_pad"),
        **_of("AvgPool2d AvgPool3d", _AVERAGE_POOL),
        **_of("AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d", "output_size"),
        **_of("AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d", "output_size"),
        **_of("LPPool1d LPPool2d", "norm_type kernel_size stride ceil_mode"),
        **_of("Linear", "in_features out_features bias"),
        **_of("Bilinear", "in1_features in2_features out_features bias"),
        **_of("Embedding", "num_embeddings embedding_dim padding_idx max_norm norm_type "
              "scale_grad_by_freq"),
        **_of("LSTM GRU", f"{_RECURRENT} proj_size"),
        **_of("RNN", _RECURRENT.replace("num_layers", "num_layers nonlinearity")),
        **_of("Dropout Dropout1d Dropout2d Dropout3d", "p inplace"),
        **_of("AlphaDropout FeatureAlphaDropout", "p inplace"),
        **_of("ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid", "inplace"),
        **_of("Sigmoid Tanh LogSigmoid Softsign Tanhshrink Identity Softmax2d", ""),
        **_of("ELU CELU", "alpha inplace"),
        **_of("LeakyReLU", "negative_slope inplace"),
        **_of("Hardtanh", "min_val max_val inplace"),
        **_of("Threshold", "threshold value inplace"),
        **_of("Hardshrink Softshrink", "lambd"),
        **_of("GELU", "approximate"),
        **_of("GLU Softmax LogSoftmax Softmin", "dim"),
        **_of("Softplus", "beta threshold"),
        **_of("PReLU", "num_parameters init"),
        **_of("Flatten", "start_dim end_dim"),
        **_of("Unflatten", "dim unflattened_size"),
        **_of("Upsample", "size scale_factor mode align_corners"),
        **_of("PixelShuffle", "upscale_factor"),
        **_of("PixelUnshuffle", "downscale_factor"),
        **_of("ChannelShuffle", "groups"),
        **_of("Unfold", "kernel_size dilation padding stride"),
        **_of("Fold", "output_size kernel_size dilation padding stride"),
        **_of("ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d "
              "ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d "
              "CircularPad3d", "padding"),
        **_of("ConstantPad1d ConstantPad2d ConstantPad3d", "padding value"),
    }
)  # fmt: skip
