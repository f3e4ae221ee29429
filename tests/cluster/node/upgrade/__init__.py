"""The driver of a node is upgraded by `driver.upgrade`: real kubelet, real containers, images that play NVIDIA's."""
