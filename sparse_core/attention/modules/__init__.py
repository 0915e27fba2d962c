"""Attention and Transformer layers as ``nn.Module``, over fixed, selected or learned patterns."""
