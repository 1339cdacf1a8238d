"""Clusterings by models that are trained: FedCRef, UIFCA and FedAvg."""
