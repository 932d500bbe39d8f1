"""From a prepared model to the contents of its artifact: quantize, measure, make goldens."""

from toolchain.assemble.decoder import decoder_contents
from toolchain.assemble.encoder import encoder_contents

__all__ = ["decoder_contents", "encoder_contents"]
