"""Training in several processes: what their ranks must agree on. torch is imported where it is used."""
