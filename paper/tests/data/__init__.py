"""Tests of pairgrad_paper.data, on small files that `cifar_files` and `malicious` write; test_real wants the real ones."""
