"""This machine: its hardware, its sensors, its speed, and a training's precision and work."""
