"""Tests of the packages that are published."""
