"""Tests of pairgrad.certificates: bounds hold, are sharp, and a falsified constant fails its proof."""
