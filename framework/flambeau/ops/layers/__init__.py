"""Layers of networks: convolutions, normalizations, pooling, attention, recurrent layers and their like."""
