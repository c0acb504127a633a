"""One training in several processes: what its ranks must agree on. torch is imported where it is used."""
