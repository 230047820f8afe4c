"""Runs and token stores in the cloud, named by URL: s3://bucket/runs/first, gs://bucket/stores/train.

The package works on folders of this machine, and what is here keeps such a folder and a URL alike:

    address.py         what a URL names, and where its folder on this machine lies
    bucket.py          the objects below a URL, through fsspec, and errors in one line
    lock.py            the lock of a run, so that one training writes to it
    working_folder.py  a run that is trained on this machine and kept in the cloud
    mirror.py          in which order its files go up
    copies.py          runs and token stores that are only read, fetched as far as they are needed
    results.py         what is made here and belongs into the cloud: reports on a run, a new token store

Why not read and write the bucket directly? Orbax could. But the contracts of a run directory rest on what a file system
has and an object store lacks: a folder that appears whole by taking its name, a file that grows, and a lock that goes
with its process. With a folder here, all of these hold as they do without a cloud, a network that fails for an hour does not
end a training, and every byte is checked against its sha256 where it is read. The price is disk space for one run.

In the bucket lies what lies in the folder, under the same names. So `aws s3 sync` or `gcloud storage cp` copies a run
from and to there. fsspec with s3fs and gcsfs was chosen over etils' epath because it can create an object on the condition
that there is none, on which the lock rests, and lists the sizes of all objects at once.
"""
