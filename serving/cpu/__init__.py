"""SGLang without a GPU: stand-ins for what its CPU build lacks, a small real model, and the launch that joins them."""
