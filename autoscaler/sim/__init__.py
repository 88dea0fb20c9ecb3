"""The simulated world around the engine: clock, fleet, resizes, probe, score."""
