"""The parts that both clients and the jobs of an application enqueue with."""
