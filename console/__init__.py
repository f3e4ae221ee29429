"""The page that shows pools, devices and pods that wait, live: one code for one user and for a cluster.

`kubectl gpu console` serves it on the loopback address with the user's own rights; `gpu-control-plane console` is a
Deployment that asks the API server what each viewer may see. It only reads, but for approvals of devices with
the rights of their viewer, and nothing of it runs in the server's process. `data` knows the cluster and no HTTP, `edge` knows HTTP and no Kubernetes object; they meet in `console_data`
and `rows`. `web` has the sources of the page, `edge/static` what is made of them.
"""
