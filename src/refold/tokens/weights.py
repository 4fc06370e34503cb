"""Weights of the estimator, written by benchmarks/fit_tokens.py, those of emoji (F and M) by benchmarks/fit_emoji.py; see
refold.tokens.estimate."""

STEP = 0.014515
"""Tokens of one unit of the weights of pairs and fours."""
ZERO = 236
"""What the weights of a character's pair and four are above their worth, together."""
PAIRS = bytes.fromhex(
    "7a9697b0b9a9bea58a97a9a32f768e82b376a4857f9c73c57b749c9572767d5d"
    "a9967a9986a19ceac59cedae6676a88bc674b65e777b89b4816194949c76d67c"
    "ad8bc27779989686885f727e88769c8e679e6c7872d0c483b86d727c8276e8aa"
    "966ad68d96a887b5835e6b867476a37bc1a56a97a670bf85cda77198c676b4d4"
    "7da1e370736c559d8d85998c9876b5786baaab7f8f84a2d09f92a5b29376b98c"
    "71a6728a88e564cea68a71e23e7688904cadeb7a8b7e76c191886571bd767add"
    "4d8faad2ae82ab7d8082745e4b76937176767676767676767676767676767676"
    "97a1b88183b7b0a2778fe7abab7671fe925d7b5a680d95905ba4a9896f76ab8a"
)
"""Of each pair of classes."""
FOURS = bytes.fromhex(
    "76a5b3a3bb808d897d6e78d27ab09997af9e8491d25f7379767470845cb79a8e"
    "898eec6d6e8e7f907a767e7a9181a67f6d846b9a8e8a9ca6939891a87d6b797b"
    "877f878a88b27767c29b9792998c918c59be9e919b969cb98a997f7f9cc68186"
    "906d8288757a8079777b768d8d797d8a84827aa764e09da0558b817c9763777a"
    "7591ba8880938a6eaf757f5f7673a68b88a28b968ec27d9583737379867c7597"
    "84808b8a72767b95767696917270717e939a8498339db67d8c9a9783979d8792"
    "9b8a85778e6694ac829190708493827a880073a161afad9b37877380aa93a69a"
    "7b8c988c988b849ba48086bf8c938195686f64736567888bb2887e90765b687d"
)
"""Of each four."""
SCRIPTS: tuple[
    tuple[bytes, tuple[bytes, ...], tuple[float, ...], tuple[bytes, ...], tuple[float, ...]], ...
] = (
    (
        b"E",
        (b"E", b"EE", b"aE", b"uE"),
        (0.4158, -0.4337, 0.4279, 1.3497),
        (b"\xc2",),
        (-0.2349,),
    ),
    (
        b"Y",
        (b"Y", b"-Y", b"YYYY"),
        (-0.4433, 2.3578, 1.1649),
        (),
        (),
    ),
    (
        b"B",
        (b"B", b"-B", b"BB", b"BBBB"),
        (0.0703, 1.6069, -0.857, 1.3789),
        (),
        (),
    ),
    (
        b"I",
        (b"I", b"-I", b"II", b"IIII"),
        (-0.4054, 1.8274, -0.1345, 1.9959),
        (),
        (),
    ),
    (
        b"S",
        (b"S", b"SS", b"SSSS", b"S-"),
        (0.4043, 0.6236, -4.0354, 1.1709),
        (b"\xe2\x96", b"\xe2\x95", b"\xe2\x80"),
        (0.1547, 0.0416, -0.2314),
    ),
    (
        b"J",
        (b"J", b"JJ", b"JJJ", b"JH", b"-J"),
        (0.1512, 0.0549, 0.0306, 0.4201, 1.2172),
        (b"\xe3\x80", b"\xe3\x83"),
        (0.575, 0.1047),
    ),
    (
        b"H",
        (b"H", b"H-", b"-H"),
        (0.3955, 1.2161, 0.2792),
        (b"\xe4", b"\xe9", b"\xe7\x9a\x84"),
        (-0.6851, 0.8473, -0.5632),
    ),
    (
        b"K",
        (b"K", b"-K", b"KK-", b"KKK", b"KK"),
        (0.1769, 0.7118, 0.7692, 0.2929, 0.1196),
        (
            b"\xeb\x8b\x88\xeb\x8b\xa4",
            b"\xeb\x8a\x94",
            b"\xec\x9d\x84",
            b"\xec\x97\x90",
            b"\xec\x9d\xb4",
            b"\xed\x95\x98",
        ),
        (-1.5431, -0.5268, -0.5063, 0.0464, -0.2385, -0.6771),
    ),
    (
        b"F",
        (b"F",),
        (0.4769,),
        (
            b"\xef\xbc",
            b"\xef\xb8\x8f",
            b"\xef\xb8\x8f ",
            b"\xef\xb8\x8f\n",
            b"\xef\xb8\x8f\xe2",
            b"\xe2\x83\xa3",
        ),
        (0.0107, 2.0078, 0.0505, -0.184, -1.2828, -2.0917),
    ),
    (
        b"M",
        (b"M", b"MM", b"-M", b"M-", b"M-M", b"HM", b"MH"),
        (1.3279, 0.4225, 0.9363, 0.6655, -0.0914, -3.4076, 2.9801),
        (
            b"\xf0\x9f\x87",
            b"\xf0\x9f\x90",
            b"\xf0\x9f\x95",
            b"\xf0\x9f\x96",
            b"\xf0\x9f\x97",
            b"\xf0\x9f\x98",
            b"\xf0\x9f\xa5",
            b"\xf0\x9f\xa6",
            b"\xf0\x9f\xa7",
            b"\xe2\x80\x8d",
            b" \xf0\x9f",
            b"\n\xf0\x9f",
            b"\xf0\x9f\x98\x80",
            b"\xf0\x9f\x98\x82",
            b"\xf0\x9f\x98\x8a",
            b"\xf0\x9f\x91\x8d",
            b"\xf0\x9f\xa4\xa3",
            b"\xf0\x9f\x98\x8d",
            b"\xf0\x9f\x99\x8f",
            b"\xf0\x9f\x94\xa5",
            b"\xf0\x9f\x91\x8f",
            b"\xf0\x9f\x98\xad",
        ),
        (
            0.1152,
            0.1917,
            1.0899,
            0.6024,
            1.0412,
            0.0905,
            0.6302,
            1.0144,
            1.1066,
            0.9934,
            -0.5747,
            -1.1448,
            -0.8656,
            -0.9756,
            -0.9932,
            -0.938,
            -0.8852,
            -0.9772,
            -0.909,
            -0.8878,
            -0.9574,
            -1.0171,
        ),
    ),
)
"""By script: its letter, patterns in letters with their tokens each, patterns in bytes with theirs."""
