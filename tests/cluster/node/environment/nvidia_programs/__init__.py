"""Programs that stand for those of NVIDIA's images, whose files may not be had: same names, arguments, environment and output.

They run in an image of the tests (`nvidia_image`), on its Python and with the packages of the control plane.
"""
