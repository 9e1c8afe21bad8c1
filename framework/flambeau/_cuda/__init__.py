"""Arrays of CUDA devices and what ops do with them, for the rooms before `flambeau.cuda`, which is what programs see."""
