"""Tests of pairgrad.experiments.runs: killed processes (`drill`), full disks (`disks`), and states that must be `equal` bit for bit."""
