"""Layouts of labelled images; each file exports `LAYOUTS`.

Own readers in the place of torchvision.datasets, which unpickles CIFAR and asks for the archives by their MD5 sums.
"""
