"""One description of a run: TOML in, resolved TOML out, and the parts that are made of it."""
