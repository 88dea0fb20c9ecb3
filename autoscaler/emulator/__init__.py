"""The simulated fleet behind real HTTP, named and behaving like the engine it stands for."""
