"""The whole plane on one machine: real servers from wheels, and a supervisor over every process."""
