"""The public data sets of the papers: size, home, licence, and the files to download.

A name is written with small letters, digits and "_"; capitals equal small letters and "-" equals "_", so that
``S-Set1`` is ``s_set1``. A few sets have a second name, such as ``statlog`` for ``satellite``.

Where the original home offers a file in a readable form, that file is downloaded. Where it does not, or is no longer
there, it is a copy in a public repository, at one commit, whose content was compared with a second copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """One file to download, at several places that are tried in this order.

    The checksum, ``"sha256:..."`` or ``"md5:..."``, is as published or computed from the file; empty where none is known:
    then a download needs `unverified`, and every later one has to equal the first.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str = ""


@dataclass(frozen=True)
class Entry:
    """One data set; sizes are 0 where they are not known, and there are 0 classes where it has no labels.

    Attributes
    ----------
    home : str
        Where the original is described.
    convert : str
        The function of `p2pclust.data.convert` that makes arrays of the files.
    files : tuple of Remote
        Empty where no file can be downloaded directly.
    groups : int
        Devices or persons that the rows came from.
    archive : str
        Sets of the same archive share its download.
    part : str
        Which part of the archive this set is.
    by_hand : str
        For what cannot be downloaded directly: how to get it, and which file to give with ``--from``.
    """

    name: str
    title: str
    rows: int
    columns: int
    classes: int
    home: str
    licence: str
    citation: str
    convert: str
    files: tuple[Remote, ...] = ()
    groups: int = 0
    megabytes: float = 0.0
    archive: str = ""
    part: str = ""
    by_hand: str = ""


def _copy(repository: str, commit: str, path: str, sha256: str) -> Remote:
    """Return a file of a public repository at one commit."""
    url = f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"
    return Remote(path.rpartition("/")[2], (url,), f"sha256:{sha256}")


def _uci(number: int, name: str, sha256: str) -> Remote:
    return Remote(
        f"{name}.zip", (f"https://archive.ics.uci.edu/static/public/{number}/{name}.zip",), f"sha256:{sha256}"
    )


_DERIC = ("deric/clustering-benchmark", "fc7aba73c873b0e017dd3a6d7113b1cb2ede118a")
_ARTIFICIAL = "src/main/resources/datasets/artificial"
_PATIENTS = ("aathawerani/PatientHealthMonitoring", "f2ece0f65780ec20eb902f214a16d8c9ffabbf2c")
_S_SETS = "P. Fränti, O. Virmajoki, Iterative shrinking method for clustering problems, Pattern Recognition 39, 2006"

_TABLES = (
    Entry(
        "xclara", "xclara, 2-D", 3000, 2, 3, "https://CRAN.R-project.org/package=cluster",
        "GPL-2 or later", "A. Struyf, M. Hubert, P. Rousseeuw, Clustering in an object-oriented environment, 1996",
        "arff",
        (_copy(*_DERIC, f"{_ARTIFICIAL}/xclara.arff",
               "fe968dc2b7f261b8f57b508b27b7105c141c8832a1f5a920883e89ac50982d62"),),
        megabytes=0.1,
    ),
    Entry(
        "s_set1", "S1: 15 Gaussians, 2-D", 5000, 2, 15, "https://cs.uef.fi/sipu/datasets/", "not stated", _S_SETS,
        "arff",
        (_copy(*_DERIC, f"{_ARTIFICIAL}/s-set1.arff",
               "d107e62555f1a7da8a5e700e18bd315252f39253bc5e0bfd71aa6ce8bc79e2d3"),),
        megabytes=0.1,
    ),
    Entry(
        "s_set2", "S2: 15 Gaussians that overlap, 2-D", 5000, 2, 15, "https://cs.uef.fi/sipu/datasets/", "not stated",
        _S_SETS, "arff",
        (_copy(*_DERIC, f"{_ARTIFICIAL}/s-set2.arff",
               "d5e93ff5264b0bfaf6c6a4a1544222a2c6831f1499fe4d51594810e69dadf4d7"),),
        megabytes=0.1,
    ),
    Entry(
        "pendigits", "Pen-based handwritten digits", 10992, 16, 10, "https://doi.org/10.24432/C5MG6K", "CC BY 4.0",
        "E. Alpaydin, F. Alimoglu, Pen-based recognition of handwritten digits, UCI, 1996", "pendigits",
        (_uci(81, "pen+based+recognition+of+handwritten+digits",
              "1e02bea023613c2b11c9492f6f34caf975420455934f3527d270cee9a1f03b64"),),
        megabytes=1.7,
    ),
    Entry(
        "waveform", "Waveform, version 1, 21 features", 5000, 21, 3, "https://doi.org/10.24432/C5CS3C", "CC BY 4.0",
        "L. Breiman, J. Friedman, R. Olshen, C. Stone, Classification and regression trees, 1984", "comma_separated",
        # UCI's own archive holds it compressed in a way that Python does not read (.Z).
        (_copy("loremo/AdaBoost", "0732aafde4aa10c6e0ae9a8f4554b41240fb688c", "data/waveform.data",
               "2afef89f05c0bbb781857d591d1898973a6996b122ebfef062a62f01441ce9a6"),),
        megabytes=0.6,
    ),
    Entry(
        "phoneme", "Phoneme: nasal or oral vowels", 5404, 5, 2, "https://www.openml.org/d/1489", "not stated",
        "ELENA project (ESPRIT 6891), phoneme database, 1995", "comma_separated",
        (_copy("jbrownlee/Datasets", "d20fcb6402ae34e653d4513b00f39257bb37ed7f", "phoneme.csv",
               "eacbb9f7a2b2135d067bff28ed7b9adb760f61f5e91f375f91e22e7e42ace24d"),),
        megabytes=0.2,
    ),
    Entry(
        "rice", "Rice: Cammeo or Osmancik", 3810, 7, 2, "https://doi.org/10.24432/C5MW4Z", "CC BY 4.0",
        "I. Cinar, M. Koklu, Classification of rice varieties using artificial intelligence methods, 2019", "rice",
        (_uci(545, "rice+cammeo+and+osmancik", "fe94e42046b829de21b92b0ffb6a22774fde021328cae799faa802a14e8dbed9"),),
    ),
    Entry(
        "satellite", "Statlog (Landsat satellite), 36 features", 6435, 36, 6, "https://doi.org/10.24432/C55887",
        "CC BY 4.0", "A. Srinivasan, Statlog (Landsat Satellite), UCI, 1993", "satellite",
        (_uci(146, "statlog+landsat+satellite",
              "7c54e0e11c872a1b0b647da370d596dcb06746159cce4121d92ccd70b7d7ce3c"),),
    ),
)  # fmt: skip

_SENSORS = (
    Entry(
        "wisdm_ar", "WISDM activity recognition, by user", 5418, 40, 6, "https://www.cis.fordham.edu/wisdm/dataset.php",
        "not stated; its authors ask for citation",
        "J. Kwapisz, G. Weiss, S. Moore, Activity recognition using cell phone accelerometers, 2010", "wisdm",
        (_copy(*_PATIENTS, "SWData/4/WISDM_ar_latest/WISDM_ar_v1.1/WISDM_ar_v1.1_transformed.arff",
               "22b61d9acb7cd1d3446c0d9e79a8753747a1fd85b167d60aafef648315f5be9d"),),
        groups=36, megabytes=1.2,
    ),
    Entry(
        "ulb_library2", "Sensor network in a library, by node", 7114, 6, 0,
        "http://www.ulb.ac.be/di/mlg/sensorNet/datasets.html", "not stated", "Université libre de Bruxelles, Library 2",
        "library",
        (_copy(*_PATIENTS, "SWData/2/library2data/Library2-Dataset/readings.txt",
               "ed975eb3fe3a3732fb056c6d4d4aadef3c22e3fbef6d27e1fb783413feec818b"),),
        groups=20, megabytes=0.3,
    ),
    Entry(
        "lwsndr", "Labelled sensor network, by mote", 37674, 2, 2, "https://doi.org/10.1109/ISSNIP.2010.5706782",
        "not stated", "S. Suthaharan et al., Labelled data collection for anomaly detection in WSNs, ISSNIP 2010", "motes",
        tuple(
            _copy(*_PATIENTS, f"SWData/1/{folder}/{folder}/{name}-data.txt", sha256)
            for folder, name, sha256 in (
                ("SingleHopLabelledReadings", "singlehop-indoor-moteid1",
                 "901bd38cb0be87f15fddc63fd403510defa672f4c2aaff254889344470865628"),
                ("SingleHopLabelledReadings", "singlehop-indoor-moteid2",
                 "afdade8f56d6ae1659b151a75d7b8039d58348fd174152311a256defe2635f79"),
                ("SingleHopLabelledReadings", "singlehop-outdoor-moteid3",
                 "1fa20561c7bbc66d73aae39028e7113a38452b7f7c9133625b0b278ebe2a36ab"),
                ("SingleHopLabelledReadings", "singlehop-outdoor-moteid4",
                 "49dffc6b90e3de6f5367c8fd29bf02cfc7dbdf76f87d24991134cda344817ec2"),
                ("MultiHopLebelledReadings", "multihop-indoor-moteid3",
                 "15c418ff38f852c319be7f5513650822070e1738542c31aa29532db97e60357b"),
                ("MultiHopLebelledReadings", "multihop-indoor-moteid4",
                 "7352276e1a6d939c25ab2bec24f5653e88b2af2d63bb2e86028f78056691f738"),
                ("MultiHopLebelledReadings", "multihop-outdoor-moteid1",
                 "64574ba20e5ee0086f836fa35d79dc99873415f5b7eb302cad02c74d4dc0d945"),
                ("MultiHopLebelledReadings", "multihop-outdoor-moteid2",
                 "79068ca35affbfdd9c381ad2096d8390541fd0bce3ba4dbfecd9008d3052d0f4"),
            )
        ),
        groups=8, megabytes=0.8,
    ),
)  # fmt: skip


def _idx(bases: tuple[str, ...], md5: tuple[str, str, str, str]) -> tuple[Remote, ...]:
    """Return the four files that MNIST and its kin consist of."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(
        Remote(f"{name}-ubyte.gz", tuple(f"{base}{name}-ubyte.gz" for base in bases), f"md5:{checksum}")
        for name, checksum in zip(names, md5, strict=True)
    )


_KMNIST = "T. Clanuwat et al., Deep learning for classical Japanese literature, arXiv:1812.01718, 2018"
_CODH = "http://codh.rois.ac.jp/kmnist/dataset"

_IMAGES = (
    Entry(
        "mnist", "MNIST, 28x28 grey", 70000, 784, 10, "http://yann.lecun.com/exdb/mnist/", "CC BY-SA 3.0",
        "Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, 1998", "idx",
        _idx(
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
             "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        megabytes=11.6,
    ),
    Entry(
        "fashion_mnist", "Fashion-MNIST, 28x28 grey", 70000, 784, 10,
        "https://github.com/zalandoresearch/fashion-mnist", "MIT",
        "H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017", "idx",
        _idx(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
             "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/"
             "data/fashion/"),
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
             "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        megabytes=30.9,
    ),
    Entry(
        "kmnist", "Kuzushiji-MNIST, 28x28 grey", 70000, 784, 10, "http://codh.rois.ac.jp/kmnist/", "CC BY-SA 4.0",
        _KMNIST, "idx",
        _idx(
            (f"{_CODH}/kmnist/",),
            ("bdb82020997e1d708af4cf47b453dcf7", "e144d726b3acfaa3e44228e80efcd344",
             "5c965bf0a639b31b8f53240b1b52f4d7", "7320c461ea6c1c855c0b718fb2a4b134"),
        ),
        megabytes=21.2,
    ),
    Entry(
        "kmnist_part", "Kuzushiji-MNIST, 17,011 of its images", 17011, 784, 10, "http://codh.rois.ac.jp/kmnist/",
        "CC BY-SA 4.0", _KMNIST, "idx", by_hand="a part of kmnist that was once at hand: fetch kmnist, which has all of it",
    ),
    Entry(
        "kuzushiji_49", "Kuzushiji-49, 28x28 grey", 270912, 784, 49, "http://codh.rois.ac.jp/kmnist/", "CC BY-SA 4.0",
        _KMNIST, "npz_pairs",
        tuple(
            Remote(f"k49-{name}.npz", (f"{_CODH}/k49/k49-{name}.npz",), f"md5:{md5}")
            for name, md5 in (
                ("train-imgs", "7ac088b20481cf51dcd01ceaab89d821"),
                ("train-labels", "44a8e1b893f81e63ff38d73cad420f7a"),
                ("test-imgs", "d352e201d846ce6b94f42c990966f374"),
                ("test-labels", "4da6f7a62e67a832d5eb1bd85c5ee448"),
            )
        ),
        megabytes=74.0,
    ),
    Entry(
        "femnist", "FEMNIST of LEAF, by writer, 28x28 grey", 0, 784, 62, "https://leaf.cmu.edu/", "BSD-2-Clause (LEAF)",
        "S. Caldas et al., LEAF: a benchmark for federated settings, arXiv:1812.01097, 2018", "leaf",
        by_hand="there is no file to download: run data/femnist/preprocess.sh of github.com/TalwalkarLab/leaf, and give "
        "its folder data/all_data (or train, test) with --from",
    ),
)  # fmt: skip

_EMNIST = Remote(
    "gzip.zip",
    ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
     "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip"),
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
)  # fmt: skip

_EMNIST_PARTS = tuple(
    Entry(
        f"emnist_{part}",
        f"EMNIST {part}, 28x28 grey",
        rows,
        784,
        classes,
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        "not stated (work of the US government)",
        "G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST, arXiv:1702.05373, 2017",
        "emnist",
        (_EMNIST,),
        megabytes=561.8,
        archive="emnist",
        part=part,
    )
    for part, rows, classes in (
        ("digits", 280000, 10),
        ("letters", 145600, 26),
        ("balanced", 131600, 47),
        ("byclass", 814255, 62),
        ("bymerge", 814255, 47),
        ("mnist", 70000, 10),
    )
)

G2_DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_G2_FILES = (Remote("g2-txt.zip", ("https://cs.uef.fi/sipu/datasets/g2-txt.zip",
                                   "http://cs.joensuu.fi/sipu/datasets/g2-txt.zip")),)  # fmt: skip

_G2 = tuple(
    Entry(
        f"g2_{dimension}_{sd}",
        f"G2: dimension {dimension}, standard deviation {sd}",
        2048,
        dimension,
        2,
        "https://cs.uef.fi/sipu/datasets/",
        "not stated",
        "P. Fränti, R. Mariescu-Istodor, C. Zhong, XNN graph, 2016, doi:10.1007/978-3-319-49055-7_19",
        "g2",
        _G2_FILES,
        archive="g2",
        part=f"{dimension}-{sd}",
    )
    for dimension in G2_DIMENSIONS
    for sd in range(10, 101, 10)
)

ENTRIES: dict[str, Entry] = {
    entry.name: entry for entry in (*_TABLES, *_IMAGES, *_EMNIST_PARTS, *_SENSORS, *_G2)
}  # in the order in which they are listed
"""Every data set that `p2pclust data fetch` knows, by name."""

_ALIASES = {
    "emnist": "emnist_digits",
    "k49": "kuzushiji_49",
    "kuzushiji_mnist": "kmnist",
    "kuzushiji49": "kuzushiji_49",
    "landsat": "satellite",
    "s1": "s_set1",
    "s2": "s_set2",
    "statlog": "satellite",
}


def canonical(name: str) -> str:
    """Return the one spelling of a data set's name.

    Examples
    --------
    >>> canonical("S-Set1"), canonical("Fashion-MNIST"), canonical("statlog")
    ('s_set1', 'fashion_mnist', 'satellite')
    """
    plain = re.sub(r"[-_ ]+", "_", name.strip().lower())
    return _ALIASES.get(plain, plain)


def find(name: str) -> Entry | None:
    """Return the entry of a data set under any spelling of its name, or None."""
    return ENTRIES.get(canonical(name))
