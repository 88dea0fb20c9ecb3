"""The compiled event loop of the serving fleet: arrays in, arrays out."""
