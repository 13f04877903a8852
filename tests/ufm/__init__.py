# SPDX-License-Identifier: Apache-2.0

"""A stand-in for NVIDIA UFM: its REST interface over TCP, as documents and clients describe it.

Nobody here has a UFM. Each behaviour names its source:

* [guide]: NVIDIA's UFM Enterprise REST API Guide; a version is that of the guide.
* [um]: NVIDIA's UFM Enterprise User Manual; a version is that of the manual.
* [k8s]: Mellanox/ib-kubernetes, ``pkg/sm/plugins/ufm/ufm.go``.
* [nico]: NVIDIA's infra controller, ``crates/ib-fabric/src/ib/ufmclient/mod.rs``.
* [sdk]: Mellanox/ufm_sdk_3.0, ``scripts``.
* [fork]: togethercomputer/ib-kubernetes.
* [chosen]: no source says it; the stand-in does what is harder for a client.
"""
