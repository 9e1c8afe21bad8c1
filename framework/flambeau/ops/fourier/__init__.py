"""Fourier transforms and the windows they are taken through."""
