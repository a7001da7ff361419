"""Makes the golden cases of tests/cases: small programs, exported, with what eager PyTorch answers.

    python scripts/make_cases.py [NAME ...]        # needs torch and safetensors

A case is NAME.pt2 (the program), NAME.case.json (the calls and their answers) and NAME.safetensors (the tensors they name); the format is described in
tests/README.md. Calls run in order on one loaded program, so state carries over. Each case is kept below 50 KB.
"""
import copy
import json
import math
import pathlib
import re
import sys
import zlib

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from safetensors.torch import save_file
from torch import nn
from torch.nn.attention import varlen

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "cases"
TOLERANCE = {
    torch.float64: (1e-7, 1e-7), torch.float32: (1.3e-5, 1e-5), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1e-2),
    torch.complex64: (1.3e-5, 1e-5),
}
CASES = {}


def case(**dynamic):
    """Registers a function that returns (module or function, list of calls); a call is a tuple of arguments, or (reason, arguments) when it must be refused.
    Keyword arguments are dynamic shapes by argument name."""

    def add(build):
        CASES[build.__name__] = (build, dynamic)
        return build

    return add


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


class Refused(tuple):
    reason = ""


def refused(reason, *args):
    call = Refused(args)
    call.reason = reason
    return call


def record(name, build, dynamic):
    torch.manual_seed(zlib.crc32(name.encode()))
    module, calls = build()
    module = (module if isinstance(module, nn.Module) else Function(module)).eval()
    first = next((c for c in calls if not isinstance(c, Refused)), calls[0])
    names = list(__import__("inspect").signature(module.forward).parameters)
    shapes = {n: dynamic.get(n) for n in names} if dynamic else None
    copies = lambda args: pytree.tree_map(lambda v: copy.deepcopy(v) if isinstance(v, torch.Tensor) else v, args)
    with torch.no_grad():
        program = torch.export.export(copy.deepcopy(module), copies(tuple(first)), dynamic_shapes=shapes, strict=False)
        for graph in (m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)):
            for node in graph.nodes:
                if trace := node.meta.get("stack_trace"):
                    node.meta["stack_trace"] = re.sub(r'"[^"]*?/(site-packages/|scripts/)', r'"\1', trace)
        tensors, recorded = {}, []

        def argument(key, value):
            if isinstance(value, torch.Tensor):
                tensors[key] = value.detach().contiguous().clone()
                return {"tensor": key, "stride": list(value.stride())}
            if value is None:
                return {"none": True}
            if isinstance(value, bool):
                return {"bool": value}
            if isinstance(value, int):
                return {"int": value}
            if isinstance(value, float):
                return {"float": value if math.isfinite(value) else str(value)}
            return {"str": value}

        for n, call in enumerate(calls):
            entry = {"inputs": [argument(f"c{n}.i{i}", v) for i, v in enumerate(pytree.tree_leaves(tuple(call)))]}
            if isinstance(call, Refused):
                entry["error"] = call.reason
            else:
                entry["outputs"] = []
                for i, value in enumerate(pytree.tree_leaves(module(*copies(tuple(call))))):
                    output = argument(f"c{n}.o{i}", value)
                    if isinstance(value, torch.Tensor) and value.dtype in TOLERANCE:
                        output["rtol"], output["atol"] = TOLERANCE[value.dtype]
                    entry["outputs"].append(output)
            recorded.append(entry)
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, FOLDER / f"{name}.pt2")
    save_file(tensors, FOLDER / f"{name}.safetensors")
    text = json.dumps({"origin": "scripts/make_cases.py", "torch": torch.__version__.split("+")[0], "calls": recorded}, indent=1)
    (FOLDER / f"{name}.case.json").write_text(text + "\n")
    size = sum((FOLDER / f"{name}{end}").stat().st_size for end in (".pt2", ".safetensors", ".case.json"))
    assert size < 100_000, f"{name} has {size} bytes"


ROWS = {"x": {0: torch.export.Dim("rows")}}


@case(**ROWS)
def pointwise_chain():
    scale = torch.randn(8)
    return lambda x: F.silu(x * scale + 1).clamp(max=2), [(torch.randn(n, 8),) for n in (3, 5, 1)]


@case()
def pointwise_dtypes():
    def forward(a, b, c):
        return (a / b).half() ** 2, c // 3, c % -4, (a > b) & (c > 0), a.to(torch.bfloat16) * 3

    return forward, [(torch.randn(6) * 300, torch.rand(6) + 0.5, torch.tensor([-9, -4, 0, 4, 9, 2**40]))]


@case(**ROWS)
def row_softmax():
    return lambda x: (x.softmax(-1), x.log_softmax(0)), [(torch.randn(n, 33) * 4,) for n in (2, 4)]


class NormResidual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(24)
        nn.init.normal_(self.norm.weight)

    def forward(self, x, y):
        z = x + y
        return self.norm(z.float()).to(z.dtype), z


@case()
def layer_norm_residual():
    return NormResidual(), [(torch.randn(3, 24).bfloat16(), torch.randn(3, 24).bfloat16()) for _ in range(2)]


@case()
def transpose_copy():
    return lambda x: (x.transpose(0, 1).contiguous() * 2, x.t().reshape(-1)), [(torch.randn(7, 13),)]


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.position = nn.Parameter(torch.randn(4, 6))

    def forward(self, ids):
        return self.table(ids) + self.position


@case()
def embedding_add():
    ids = lambda *v: torch.tensor([list(v)])
    return Embedding(), [(ids(0, 10, 3, 3),), refused("index out of range", ids(0, 11, 3, 3)), (ids(1, 2, 3, 4),)]


@case()
def scatter_last_wins():
    def forward(x, index, values):
        return x.scatter(0, index, values), x.index_add(0, index[:, 0], values), x.scatter_reduce(0, index, values, "amax", include_self=False)

    index = torch.tensor([[1, 0], [1, 2], [3, 2]])
    return forward, [(torch.randn(4, 2), index, torch.randn(3, 2))]


@case()
def rows_by_data():
    """Many rows added to few, where the order decides what is lost, and rows that are set, each once or several times."""

    def forward(x, n):
        values = (spread(1500 * 40) * 10.0 ** (torch.arange(60000) % 9 - 1)).reshape(1500, 40) * x[0]
        rows = (torch.arange(1500) * 7919 + n) % 37
        pairs = rows % 5, rows // 5
        added = torch.zeros(37, 40).index_add(0, rows, values), torch.zeros(2, 37).index_add(1, rows, values[:, :2].T), torch.zeros(37).index_add(0, rows, values[:, 0])
        paired = torch.zeros(5, 8, 20).index_put(pairs, values[:, :20], accumulate=True)
        short = x.new_zeros(37, 24).to(torch.bfloat16).index_add(0, rows, values[:, :24].to(torch.bfloat16))
        apart = (torch.arange(90) * 31 + n) % 90
        copied = torch.zeros(90, 33).index_copy(0, apart, values[:90, :33])
        grid = apart.unsqueeze(1) + torch.arange(16)
        once = torch.zeros(106, 16).scatter(0, grid, values[:90, :16])
        twice = torch.zeros(60, 16).scatter(0, grid // 2, values[:90, :16])
        outputs = *added, paired, short, copied, once, twice
        return tuple(output[..., ::3] for output in outputs)

    call = torch.ones(1), torch.tensor(3)
    return forward, [call, (torch.full((1,), -0.7), torch.tensor(50))]


@case()
def scans():
    return lambda x: (x.cumsum(1), x.cummax(0), x.cumprod(1), torch.logcumsumexp(x, 0)), [(torch.randn(5, 9),)]


def spread(n, modulus=9973, step=7919):
    """n numbers all over [-1, 1), some of them equal, that no file has to hold."""
    return (torch.arange(n) * step % modulus).float() / modulus * 2 - 1


@case()
def long_reductions():
    def function(x):
        y = spread(50000) * x[0]
        columns = y.reshape(2500, 20) + x[1]
        grouped = y.reshape(2, 25000)
        return y.sum(), y.amax(), y.argmin(), y.var(), y.logsumexp(0), columns.sum(0), columns.amin(0), grouped.softmax(1)[:, ::5000], grouped.std(1)

    return function, [(torch.randn(2),)]


@case()
def long_scans():
    def function(x):
        y = spread(40000) * x[0]
        grouped = y.reshape(2, 20000)
        highest, places = grouped.cummax(1)
        return y.cumsum(0)[::997], highest[:, ::997], places[:, ::997], y.reshape(2000, 20).cumsum(0)[::97]

    return function, [(torch.randn(2),)]


@case()
def transposed_tiles():
    return lambda x, y: (x.t() * 2, x.t() + y, x.bfloat16().t().contiguous(), (x > 0).t().contiguous()), [(torch.randn(37, 70), torch.randn(70, 37))]


@case()
def long_sort():
    def function(x):
        y = spread(5000, 4001) * x[0]
        values, places = y.sort(stable=True)
        return values[::31], places[::31], y.bfloat16().argsort(stable=True, descending=True)[::31], (y * 100).to(torch.int16).argsort(stable=True)[::31], y.topk(40)[0]

    return function, [(torch.randn(1),)]


@case()
def largest_of_long_rows():
    """Of one tile and of many; equal values, of which any may be taken, and values that are all different."""

    def function(x):
        y = spread(40000, 39989) * x[0]
        ties = (y * 50).to(torch.int16)
        nans = torch.where(torch.arange(40000) % 9000 == 7, math.nan, y)
        rows = spread(9 * 1500, 13499).reshape(9, 1500) * x[1]
        return *y.topk(70), ties.topk(33)[0], y.bfloat16().topk(5, largest=False)[0], nans.topk(12)[0], *rows.topk(20, largest=False), y.double().topk(9)[1]

    return function, [(torch.tensor([1.5, -0.5]),)]


@case()
def scatter_many_rows():
    def function(x):
        y = spread(300 * 9).reshape(300, 9) * x[0]
        places = (torch.arange(300 * 9) * 31 % 40).reshape(300, 9)
        base = torch.ones(40, 9) * x[1]
        rows = torch.arange(300) * 7 % 40
        sums = base.scatter_add(0, places, y), base.index_add(0, rows, y)
        return base.scatter(0, places, y), *sums, *(base.scatter_reduce(0, places, y, kind) for kind in ("amax", "amin", "prod", "mean"))

    return function, [(torch.randn(2),)]


def stored(x):
    """The same in memory, whatever it is computed from."""
    return torch.cat([x, x[:1]])[:-1]


@case()
def long_variances():
    """Variances of rows and columns that blocks share or that are read from memory: of numbers far from 0, equal, huge, not numbers, or infinite."""

    def function(p):
        x = spread(120000) * p[0] + p[1]
        rows, columns = stored(x[:102000].reshape(3, -1)), stored(spread(16 * 32769).reshape(-1, 16) * p[0] + p[1])
        channels, few = stored(x.reshape(5, 4, 75, 80)), stored((spread(68 * 8192).reshape(-1, 8192) * p[0] + p[1]))
        spike = torch.where(torch.arange(34000) == 0, p[1], rows * 1e-3)
        mean, variance = torch.zeros(4), torch.ones(4)
        _, _, _, mean, variance = torch.ops.aten._native_batch_norm_legit_functional(channels, None, None, mean, variance, True, 0.1, 1e-5)
        near = stored(spread(102000).reshape(3, -1) * p[0] + p[1].clamp(-100, 100))
        centred = near - near.mean(1, keepdim=True)
        squares = torch.stack([(centred**2).mean(1), stored(rows.abs() + rows).var(1), stored(spike).var(1, correction=0)])
        sides = torch.std(rows[:, :33001], 1), torch.std(columns, 0), torch.var(few, 0).sum(), torch.var(rows.double(), 1)
        halves = *torch.var_mean(near.half(), 1), torch.std(near.bfloat16(), 1)
        infinite = stored(torch.where(torch.arange(34000) == 7000, math.inf, rows)).var(1)
        results = *torch.var_mean(rows, 1), *torch.std_mean(channels, (0, 2, 3)), mean, variance
        return *results, squares, *sides, *halves, infinite

    numbers = ((1, 0), (1, 1e6), (0, 3.1), (math.nan, 0), (1e16, 1e16))
    return function, [(torch.tensor(pair, dtype=torch.float32),) for pair in numbers]


@case()
def long_normalisations():
    """Normalisations of rows that do not stay in registers."""

    def function(p):
        x = stored((spread(120000) * p[0] + p[1]).reshape(5, 4, 75, 80))
        y, mean, scale, *statistics = torch.ops.aten._native_batch_norm_legit_functional(x, p[:1].expand(4), None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5)
        groups, layers = F.group_norm(x.reshape(2, 4, 150, 100), 2), F.layer_norm(x.reshape(3, 40000), (40000,))
        results = y[:, :, 7, 11], groups[:, :, 7, 11], layers[:, ::7919], F.instance_norm(x.reshape(1, 4, 300, 100))[..., 7, 11]
        return *results, y.amax((0, 2, 3)), layers.std(1), mean, scale, *statistics

    return function, [(torch.tensor(pair),) for pair in ((1.0, 0.0), (3.0, -5.0))]


@case(a={1: torch.export.Dim("n")}, offset={})
def variances_of_any_length():
    """Long or short, as many as there are: of one element and of none, too."""

    def function(a, offset):
        rows = stored(a.repeat(1, 4096) + offset)
        return *torch.var_mean(rows, 1), torch.std(rows, 1, correction=0), a.var(1), a.var(1, correction=0), stored(rows.T.contiguous()).var(0)

    shapes = ((5, 0.0), (9, 1e6), (1, 1e6), (0, 0.0))
    return function, [(torch.randn(4, n), torch.tensor(offset)) for n, offset in shapes]


@case()
def scatter_into_few():
    """Many values added up and multiplied in few places, each column's apart."""

    def function(x, n):
        y = spread(1100 * 37).reshape(1100, 37) * x[0]
        places = (torch.arange(1100 * 37).reshape(1100, 37) ** 2 // 7) % n
        base = torch.ones(30, 37) * x[1]
        base[7] = -0.0
        near = 1 + y / 64
        few = torch.zeros(3, 6).double().scatter_add(0, places[:, :6] // 10, y[:, :6].double())
        shifted = places.T - (torch.arange(1100) * 7919 % 2) * 30
        rows = torch.arange(37).unsqueeze(1).expand(37, 1100)
        put = torch.zeros(37, 30).index_put((rows, shifted), y.T, accumulate=True)
        sums = *(base.scatter_reduce(0, places, y, kind) for kind in ("sum", "mean")), base.scatter_reduce(0, places, near, "prod")
        # Some rows get nothing, or zeros below 0 alone.
        zeros = torch.full((30, 37), -0.0).scatter_add(0, places // 2, y.abs() * -0.0)
        return *sums, few, put, 1 / zeros

    return function, [(torch.randn(2), torch.tensor(30)), (torch.randn(2), torch.tensor(2))]


@case(**ROWS)
def matmul_prologue_epilogue():
    weight = torch.randn(16, 12)
    return lambda x: F.gelu((x.float() * 0.5) @ weight.t() + 1), [(torch.randn(n, 12).half(),) for n in (4, 2)]


class WideProducts(nn.Module):
    """Products that are large enough for a library of them: with an epilogue, by rows and by columns, several at once; and state."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 24)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, y):
        self.count.add_(1)
        turned = F.gelu(self.linear(x)).t() @ x * 0.1
        several = torch.bmm((turned @ y).view(2, 20, 24).transpose(1, 2) * 0.1, x.t()[:20].expand(2, 20, 36))
        return several.tanh() + self.count


@case()
def wide_products():
    return WideProducts(), [(torch.randn(36, 32), torch.randn(32, 40)) for _ in range(2)]


class TileProducts(nn.Module):
    """Products of halves that lie as the copy engine of Hopper takes them: operands by rows and by columns, in batches, broadcast, of many stages of
    depth, cut off at every side; and convolutions by single points."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 24).bfloat16()
        self.points = nn.Conv2d(16, 24, 1).half().to(memory_format=torch.channels_last)

    def forward(self, x, deep, shared, heads, image):
        rows = F.gelu(self.linear(x))
        columns = deep @ shared
        scores = heads @ heads[:1].transpose(-1, -2)
        return rows, columns, scores, scores @ heads, F.relu(self.points(image))


@case(**ROWS)
def tile_products():
    call = lambda n: (
        torch.randn(n, 32).bfloat16(),
        torch.randn(18, 136).half(),
        torch.randn(136, 24).half(),
        torch.randn(2, 2, 24, 24).bfloat16(),
        torch.randn(2, 16, 3, 5).half().contiguous(memory_format=torch.channels_last),
    )
    return TileProducts(), [call(66)]


class AttentionTiles(nn.Module):
    """Attention of so many heads (each the same) that tiles of Hopper's copy engine are taken. Masks hide whole steps of keys, some keys of a step,
    every key of a query, or nothing."""

    def forward(self, query, key, position):
        query, key = (x.expand(-1, 132, -1, -1) for x in (query, key))
        columns = torch.arange(key.shape[2])
        causal = F.scaled_dot_product_attention(query, key, key, is_causal=True)
        seen = F.scaled_dot_product_attention(query, key, key, attn_mask=columns <= position[:, None])
        late = torch.where(columns >= 128 + position[:, None], 0.0, float("-inf")).half()
        late = F.scaled_dot_product_attention(query, key, key, attn_mask=late, scale=0.3)
        return causal[:, ::131], seen[:, 1], late[:, 0]


@case()
def attention_tiles():
    position = torch.arange(24) + 20
    position[3] = -1
    call = (torch.randn(1, 1, 24, 64).half(), torch.randn(1, 1, 150, 64).half(), position)
    return AttentionTiles(), [call]


class ReversedTiles(nn.Module):
    """Products and attention of halves whose rows, matrices, keys or values are taken from the last to the first, which the copy engine of Hopper cannot;
    and convolutions of images that are turned over."""

    def forward(self, x, weight, heads, query, key, image, filters):
        rows, columns = x.flip(0) @ weight.T, x @ weight.flip(0).T
        scores = heads.flip(0) @ heads.transpose(-1, -2)
        query, key = (y.expand(-1, 132, -1, -1) for y in (query, key))
        seen = F.scaled_dot_product_attention(query, key.flip(2), key.flip(2))
        turned = F.conv2d(image.flip(2, 3), filters.flip(1), padding=1)
        halves = F.conv2d(image.half().flip(3), filters.half().flip(0), stride=2)
        return rows, columns, scores, seen[:, 3], turned, halves


@case()
def reversed_tiles():
    call = (
        torch.randn(18, 32).half(),
        torch.randn(24, 32).half(),
        torch.randn(3, 18, 24).bfloat16(),
        torch.randn(1, 1, 10, 64).half(),
        torch.randn(1, 1, 40, 64).half(),
        torch.randn(1, 9, 6, 7),
        torch.randn(10, 9, 3, 2),
    )
    return ReversedTiles(), [call]


class FewChannels(nn.Module):
    """Convolutions of 16-bit images with few channels: of large filters, next to each other, in either layout."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 11, stride=4, padding=2).half()
        self.second = nn.Conv2d(5, 24, (3, 2), padding=1, dilation=(2, 1)).bfloat16()

    def forward(self, image, features):
        return F.relu(self.first(image)), self.second(features) * 0.5


@case(image={0: torch.export.Dim("n", min=1, max=16)}, features=None)
def few_channels():
    call = lambda n: (torch.randn(n, 3, 23, 21).half(), torch.randn(1, 5, 9, 8).bfloat16().contiguous(memory_format=torch.channels_last))
    return FewChannels(), [call(2), call(1)]


class Tf32Products(nn.Module):
    """Products and convolutions of float32 numbers with few bits of mantissa: rounding them to TF32 changes nothing."""

    def __init__(self):
        super().__init__()
        coarse = lambda *sizes: nn.Parameter(torch.randint(-32, 33, sizes) / 16)
        self.linear, self.image, self.grouped = coarse(20, 24), coarse(12, 5, 3, 3), coarse(16, 4, 3)

    def forward(self, x, batch, image, signal):
        rows = F.gelu(x @ self.linear.t())
        turned = batch.transpose(1, 2) @ batch
        return rows, turned, F.conv2d(image, self.image, stride=2, padding=1), F.conv1d(signal, self.grouped, groups=2, padding=1)


@case(x={0: torch.export.Dim("n", min=17, max=200)}, batch=None, image=None, signal=None)
def tf32_products():
    coarse = lambda *sizes: torch.randint(-64, 65, sizes) / 16
    call = lambda n: (coarse(n, 24), coarse(2, 20, 18), coarse(1, 5, 13, 11), coarse(1, 8, 30))
    return Tf32Products(), [call(66)]


class GroupedChannels(nn.Module):
    """Groups of channels that runs of results do not divide, though they divide all channels, and what is computed from them."""

    def __init__(self):
        super().__init__()
        self.halves = nn.Conv2d(32, 24, 3, padding=1, groups=2).bfloat16()
        self.fourths = nn.Conv1d(64, 48, 1, groups=4).half()
        self.wide = nn.Conv2d(18, 20, 1, groups=2)

    def forward(self, image, other, sequence, features):
        features = features.permute(0, 3, 1, 2)
        return F.relu(self.halves(image) + other), self.fourths(sequence) * 0.5, F.relu(self.wide(features)).permute(0, 2, 3, 1)


@case()
def grouped_channels():
    image, other = torch.randn(1, 32, 5, 4).bfloat16(), torch.randn(1, 24, 5, 4).bfloat16()
    return GroupedChannels(), [(image, other, torch.randn(2, 64, 7).half(), torch.randn(1, 5, 3, 18))]


@case()
def few_positions():
    """Convolutions that read their filters for few results: of windows that overlap, of whole images, by points, and with what follows."""

    def forward(signal, image, squeezed):
        filters = spread(160 * 256 * 5).reshape(256, 160, 5) * signal.mean()
        dilated = F.conv1d(signal, filters, signal[0, :8].repeat(1, 2)[:, 0].repeat(32)[:256], padding=2, stride=2)
        half = F.conv2d(image.half(), filters.half().reshape(256, 50, 4, 4), stride=4)
        whole = F.gelu(F.conv2d(squeezed, filters[:48, :, :1, None]))
        last = F.conv2d(squeezed.bfloat16().to(memory_format=torch.channels_last), filters[:64, :80, :2].reshape(64, 160, 1, 1).bfloat16())
        return dilated[:, ::7], half[:, ::5], whole, last

    return forward, [(torch.randn(1, 160, 7), torch.randn(1, 50, 4, 8), torch.randn(2, 160, 1, 1))]


class Upsampled(nn.Module):
    """Transposed convolutions whose filters are constants: of few positions and of many, from channels in their place and last."""

    def __init__(self):
        super().__init__()
        self.wide, self.up, self.small = nn.ConvTranspose1d(6, 48, 4, 2, 1), nn.ConvTranspose2d(6, 9, 3, 2, 1, 1), nn.ConvTranspose2d(8, 8, 2, 2).half()

    def forward(self, signal, image):
        half = self.small(F.pad(image.half(), (0, 0, 0, 0, 0, 2)).to(memory_format=torch.channels_last))
        return self.wide(signal), self.up(image), half


@case()
def upsampled():
    return Upsampled(), [(torch.randn(2, 6, 3), torch.randn(2, 6, 5, 4))]


class TwoCameras(nn.Module):
    """One network over two images, their features as tokens: taken apart into a list, as policies do, and put together with others."""

    def __init__(self):
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 1))
        self.state, self.mix = nn.Linear(5, 16), nn.Linear(16, 16)

    def forward(self, state, left, right):
        tokens = [self.state(state)]
        for image in (left, right):
            tokens.extend(list(self.eyes(image).flatten(2).permute(2, 0, 1)))
        tokens = torch.stack(tokens)
        turned = torch.cat([tokens[3:], tokens[:3]])
        return self.mix(tokens), turned, torch.stack(list(tokens.flip(0)[:4]), -1)


@case()
def two_cameras():
    return TwoCameras(), [(torch.randn(2, 5), torch.randn(2, 3, 18, 14), torch.randn(2, 3, 18, 14))]


class KeyValueCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4))

    def forward(self, query, key, position):
        self.keys.index_copy_(2, position, key)
        mask = (torch.arange(8) <= position)[None, None, None]
        return F.scaled_dot_product_attention(query, self.keys, self.keys, attn_mask=mask, enable_gqa=True)


@case()
def key_value_cache():
    call = lambda p: (torch.randn(1, 4, 1, 4), torch.randn(1, 2, 1, 4), torch.tensor([p]))
    bad = refused("position out of range", torch.randn(1, 4, 1, 4), torch.randn(1, 2, 1, 4), torch.tensor([8]))
    return KeyValueCache(), [call(0), call(1), bad, call(2), call(7)]


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        before = self.calls.clone()
        self.calls += 1
        self.total.mul_(0.5).add_(x)
        return before, self.total * self.calls, self.total[1:]


@case()
def counter():
    return Counter(), [(torch.randn(3),) for _ in range(4)]


@case()
def writes_through_views():
    def forward(x):
        y = x.clone()
        y[1:3, ::2] += 10
        y.t()[0].fill_(-1)
        y.view(-1)[5] = 7
        z = y.diagonal()
        z.mul_(2)
        return y, z

    return forward, [(torch.randn(4, 5),)]


@case()
def writes_its_input():
    def forward(x, y):
        x.add_(y)
        return x * 2

    return forward, [(torch.randn(3, 2), torch.randn(2))]


@case()
def masks():
    def forward(x, m):
        y = x.clone()
        y[m] = 0
        return x[m], y, torch.where(m, x, -x), m.nonzero(), x.masked_fill(m, 3)

    return forward, [(torch.randn(3, 4), torch.rand(3, 4) > p) for p in (0.5, 1.0, -1.0)]


@case()
def masked_copy():
    def forward(x, y, m):
        out = x.clone()
        out[m] = y[m]
        return out

    return forward, [(torch.randn(3, 4), torch.randn(3, 4), torch.rand(3, 4) > 0.5)]


@case()
def branch():
    def forward(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))

    return forward, [(torch.ones(3),), (-torch.ones(3),)]


@case()
def loop():
    def forward(x, n):
        return torch.while_loop(lambda x, n: n > 0, lambda x, n: (x * 2, n - 1), (x, n))

    return forward, [(torch.randn(3), torch.tensor(4)), (torch.randn(3), torch.tensor(0))]


@case()
def order():
    x = torch.tensor([[3.0, float("nan"), 1.0, 3.0, -2.0, 1.0]])

    def forward(x):
        # topk leaves the order of equals open: it gets none.
        return x.sort(stable=True), (x + torch.arange(6) / 8).topk(3), x.argmax(), x.argmin(-1), x.median(-1), torch.searchsorted(torch.tensor([0.0, 1.0, 2.0]), x)

    return forward, [(x,)]


class Stateful(nn.Module):
    """A step that reads and writes buffers of its own."""

    def __init__(self, step, buffers):
        super().__init__()
        self.step = step
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.step(self, x)


def stateful(make_input, calls=3, refusal=None, dynamic=None, **buffers):
    """Registers a step that takes the module and x, as the case of its name: a program whose answers depend on the calls before."""

    def add(step):
        def build():
            inputs = [(make_input(n),) for n in range(calls)]
            if refusal:
                inputs.insert(1, refused(*refusal))
            return Stateful(step, copy.deepcopy(buffers)), inputs

        CASES["state_" + step.__name__] = (build, {"x": dynamic} if dynamic else {})
        return step

    return add


def number():
    return torch.zeros((), dtype=torch.int64)


def small(*sizes):
    """Random numbers that do not depend on the case: buffers are made once."""
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(len(sizes)))


ones_and_twos = lambda n: torch.ones(3) * (n % 2 + 1)
signs = lambda n: torch.ones(3) * (1 - n % 2 * 2)
normal = lambda *sizes: lambda n: torch.randn(*sizes)


@stateful(lambda n: torch.arange(6.0 - n), calls=4, dynamic={0: torch.export.Dim("n")}, count=number())
def mask_count(m, x):
    m.count += 1
    picked = x[x > m.count]
    return picked * m.count, picked.shape[0]


@stateful(ones_and_twos, ready=torch.tensor(False))
def flag(m, x):
    """The first call raises the flag that all calls read."""
    y = torch.cond(m.ready, lambda x: x + 10, lambda x: x * 2, (x,))
    m.ready.fill_(True)
    return y


@stateful(normal(2, 4), hidden=torch.zeros(2, 5), w=small(4, 5), u=small(5, 5))
def recurrence(m, x):
    m.hidden.copy_(torch.tanh(x @ m.w + m.hidden @ m.u - 1))
    return m.hidden * 2


@stateful(normal(6, 3), mean=torch.zeros(3), var=torch.ones(3))
def running_statistics(m, x):
    return F.batch_norm(x, m.mean, m.var, training=True), m.mean + m.var


@stateful(normal(2), calls=6, ring=torch.zeros(4, 2), count=number())
def ring(m, x):
    m.ring.index_copy_(0, (m.count % 4)[None], x[None])
    m.count += 1
    return m.ring.sum(0), m.ring[:2]


@stateful(lambda n: torch.tensor([n, 3, 3, 1]), bins=torch.zeros(5))
def histogram(m, x):
    m.bins.scatter_add_(0, x, torch.ones(4))
    return m.bins / m.bins.sum()


@stateful(lambda n: torch.tensor([0, n, n]), refusal=("out of range", torch.tensor([0, 9, 0])), table=torch.zeros(4, 2))
def accumulated(m, x):
    m.table.index_put_((x,), torch.ones(3, 2), accumulate=True)
    return m.table.clone()


@stateful(normal(4), best=torch.full((3,), -9.0))
def best_so_far(m, x):
    m.best.copy_(torch.cat([m.best, x]).sort(descending=True, stable=True)[0][:3])
    return m.best.clone(), m.best.argmin()


@stateful(ones_and_twos, steps=number(), total=torch.zeros(3))
def loop_on_a_count(m, x):
    m.steps += 2
    y, n = torch.while_loop(lambda y, n: n > 0, lambda y, n: (y * 0.5 + x, n - 1), (m.total.clone(), m.steps.clone()))
    m.total.copy_(y)
    return y, n


@stateful(lambda n: torch.ones(n + 2), dynamic={0: torch.export.Dim("n")}, count=number())
def item(m, x):
    m.count += 3
    return x * m.count.item()


@stateful(lambda n: torch.arange(8.0), count=number())
def size_from_a_count(m, x):
    m.count += 2
    n = m.count.item()
    torch._check(n >= 0)
    torch._check(n <= 8)
    return x[:n].flip(0), x[:n].sum()


@stateful(normal(5, 2), carry=torch.zeros(2))
def running_sum(m, x):
    y = x.cumsum(0) + m.carry
    m.carry.copy_(y[-1])
    return y


@stateful(normal(1, 2, 4), frames=torch.zeros(1, 2, 2), weight=small(3, 2, 3))
def streaming_convolution(m, x):
    window = torch.cat([m.frames, x], 2)
    m.frames.copy_(x[..., -2:])
    return F.conv1d(window, m.weight)


@stateful(normal(4), draws=number(), low=torch.ones(4))
def noise(m, x):
    m.draws += 1
    m.low.copy_(torch.minimum(m.low, torch.rand(4)))
    return m.draws.clone(), (m.low >= 0) & (m.low < 1)


@stateful(signs, total=torch.zeros(3))
def written_in_one_branch(m, x):
    m.total.copy_(torch.cond(x.sum() > 0, lambda x, t: t + x, lambda x, t: t.clone(), (x, m.total)))
    return m.total * 2


@stateful(signs, count=number(), total=torch.zeros(3))
def nested_branches(m, x):
    m.count += 1
    inner = lambda x, c: torch.cond(c > 2, lambda x: x * 5, lambda x: x - 1, (x,))
    m.total += torch.cond(x.sum() > 0, inner, lambda x, c: x * c, (x, m.count))
    return m.total.clone()


@stateful(ones_and_twos, bytes=torch.full((3,), 254, dtype=torch.uint8), odd=torch.tensor([True, False, True]), halves=torch.ones(3).half(),
          brain=torch.ones(3).bfloat16(), doubles=torch.ones(3).double(), pair=torch.ones(3) * 1j)
def dtypes(m, x):
    m.bytes += 1
    m.odd.logical_not_()
    m.halves.mul_(3).add_(x)
    m.brain.mul_(1.7)
    m.doubles.div_(3)
    m.pair.mul_(1 + 2j)
    return m.bytes + m.odd, m.halves.float() + m.brain, m.doubles * x, m.pair * x


@stateful(ones_and_twos, a=torch.arange(3.0), b=-torch.ones(3))
def swapped(m, x):
    a = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(a + x)
    return m.a - m.b, a


@stateful(normal(2), grid=torch.zeros(4, 3))
def written_through_views(m, x):
    m.grid[1::2].t()[1].add_(x)
    m.grid.view(-1)[3:5].mul_(2)
    return m.grid.t().contiguous(), m.grid[1]


@stateful(lambda n: torch.tensor([0.5, -1, n - 1, 1 - n]), seen=torch.zeros(4, dtype=torch.bool))
def seen_so_far(m, x):
    m.seen |= x > 0
    return m.seen.nonzero(), x[m.seen]


@stateful(lambda n: torch.tensor([n % 3, 1]), table=small(3, 4))
def looked_up_and_changed(m, x):
    rows = F.embedding(x, m.table)
    m.table.index_fill_(0, x[:1], 0.25)
    return F.layer_norm(rows, (4,)), m.table.sum()


@stateful(normal(3), weight=torch.ones(3), velocity=torch.zeros(3))
def momentum(m, x):
    loss = (m.weight * x).sum()
    m.velocity.mul_(0.9).add_(x * loss)
    m.weight.sub_(m.velocity * 0.1)
    return loss, m.weight.norm()


@stateful(ones_and_twos, refusal=("x must be positive", torch.zeros(3)), count=number())
def checked(m, x):
    torch._assert_async((x > 0).all(), "x must be positive")
    m.count += 1
    return x * m.count


@stateful(ones_and_twos, count=number())
def written_input(m, x):
    m.count += 1
    x.add_(m.count)
    return x * 2


@stateful(lambda n: torch.randn(1, 2, 4, 4).contiguous(memory_format=torch.channels_last), sum=torch.zeros(1, 3, 4, 4), weight=small(3, 2, 1, 1))
def channels_last(m, x):
    y = F.conv2d(x, m.weight) + m.sum.contiguous(memory_format=torch.channels_last)
    m.sum.copy_(y)
    return y.relu()


@stateful(lambda n: torch.arange(5.0) - n, count=number(), scale=torch.ones(()))
def two_reads(m, x):
    m.count += 1
    y = x * m.count.item()
    m.scale.mul_(1.5)
    return y[y > 1] + m.scale.item(), m.count * 2


@stateful(normal(3, 4), logits=torch.zeros(3, 4), temperature=torch.ones(()))
def softened(m, x):
    m.logits.lerp_(x, 0.3)
    m.temperature.mul_(1.1)
    return (m.logits / m.temperature).softmax(1), m.logits.logsumexp(0), m.logits.argmax(1)


SIZES = {"x": {1: torch.export.Dim("rows"), 2: torch.export.Dim("columns")}}


@case(**SIZES)
def equal_byte_counts():
    """Sizes that differ and take the same memory."""
    return lambda x: (x.cumsum(1), x.amax(2), x.transpose(1, 2) * x.shape[1]), [(torch.randn(*s),) for s in ((2, 3, 4, 4), (2, 4, 3, 4), (2, 2, 6, 4))]


class ReadsAConstant(nn.Module):
    """Reads a value on the host that nothing writes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("width", torch.tensor(2))
        self.register_buffer("count", number())

    def forward(self, x):
        self.count += 1
        width = self.width.item()
        torch._check(width >= 0)
        torch._check(width <= 4)
        return x[:width] * self.count, torch.cond(self.width > 1, lambda x: x + 1, lambda x: x - 1, (x,))


@case()
def reads_a_constant():
    return ReadsAConstant(), [(torch.randn(4),) for _ in range(3)]


@case(x={0: torch.export.Dim("n", max=8)})
def bounded_rows():
    return lambda x: (x * 2, x[x > 0]), [(torch.randn(n, 2),) for n in (3, 8, 2)]


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.b = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8)
        self.c = nn.ConvTranspose2d(8, 2, 2, stride=2)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        x = F.relu(self.norm(self.a(x)))
        return self.c(F.max_pool2d(x + self.b(x), 2)), F.adaptive_avg_pool2d(x, 1).flatten(1)


@case(x={0: torch.export.Dim("batch")})
def convolutions():
    return Convolutions(), [(torch.randn(n, 3, 16, 12),) for n in (2, 1)]


@case()
def channels_last():
    weight = torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    return lambda x: F.conv2d(x, weight, padding=1).sigmoid(), [(x,)]


def half(*shape):
    return torch.randn(*shape).half()


@case()
def half_products():
    """What GPUs give their tensor cores; and rows that stay in registers."""

    def forward(a, b, image, filters, rows):
        products = (a @ b.t(), a.t() @ a, a[:3] @ b.t(), b.t() @ b[:, :9])
        return (*products, F.max_pool2d(F.conv2d(image, filters, padding=1).relu(), 2), rows.softmax(-1))

    return forward, [(half(20, 24), half(18, 24) / 5, half(1, 8, 6, 5), half(16, 8, 3, 3) / 8, half(1, 264))]


@case()
def half_attention():
    def forward(q, k, v, bias):
        attend = lambda **more: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **more)
        return attend(), attend(attn_mask=bias), attend(attn_mask=bias > 0), attend(is_causal=True)

    return forward, [(half(1, 4, 6, 16), half(1, 2, 70, 16), half(1, 2, 70, 16), half(1, 1, 6, 70))]


@case()
def resize():
    def forward(x):
        return (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(3, 3), mode="bicubic", antialias=True),
        )

    return forward, [(torch.randn(1, 2, 4, 4),)]


@case()
def complex_numbers():
    def forward(x):
        z = torch.fft.rfft(x)
        return torch.view_as_real(z * z.conj()), z.abs(), torch.fft.irfft(z, n=10)

    return forward, [(torch.randn(2, 10),)]


@case()
def recurrent():
    return nn.GRU(4, 6, num_layers=2, bidirectional=True, batch_first=True), [(torch.randn(2, 5, 4),)]


@case()
def integer_rules():
    def forward(a, b):
        return a // b, a % b, torch.div(a, b, rounding_mode="trunc"), torch.fmod(a, b), a << 3, a >> 1, a.sum(), (a > 0).sum()

    return forward, [(torch.tensor([7, -7, 7, -7, -(2**62)]), torch.tensor([2, 2, -2, -2, -1]))]


@case(x={0: torch.export.Dim("n", min=3, max=6)})
def size_bounds():
    return lambda x: x + torch.arange(x.shape[0]), [
        (torch.randn(4),), refused("too long", torch.randn(7)), refused("too short", torch.randn(2)), refused("dtype", torch.randn(4).double()), (torch.randn(3),),
    ]


@case()
def asserts():
    def forward(x):
        torch._assert_async((x > 0).all(), "x must be positive")
        return x.log()

    return forward, [(torch.rand(3) + 1,), refused("negative", -torch.rand(3)), (torch.rand(3) + 1,)]


AUTO = torch.export.Dim.DYNAMIC


@case(x={0: AUTO}, y={0: AUTO}, n=AUTO)
def checks():
    def positive(x):
        torch._assert_async((x > 0).all(), "x must be positive")
        return x.clone()

    def forward(x, y, n):
        torch._check(x.shape[0] % 2 == 0)
        torch._check(y.shape[0] != 7)
        torch._check(x.shape[0] + y.shape[0] < 20)
        torch._check(n <= 5)
        # Nothing reads the branch's result.
        torch.cond(x.sum() > 0, positive, torch.clone, (x,))
        return x.sum() + y * n

    x, y = torch.rand(4) + 1, torch.randn(5)
    return forward, [
        (x, y, 3), refused("odd", x[:3], y, 3), refused("7", x, torch.randn(7), 3), refused("23 together", torch.rand(12), torch.randn(11), 3),
        refused("n above 5", x, y, 6), refused("negative", x - torch.tensor([2.5, 0, 0, 0]), y, 3), (-x, y, 3), (torch.rand(6), torch.randn(3), 2),
    ]


@case()
def repeated_outputs():
    def forward(x):
        y = x * 2
        return y, y, x, {"view": y.t(), "number": x.shape[0]}

    return forward, [(torch.randn(2, 3),)]


@case(x={0: torch.export.Dim.AUTO})
def chunks():
    """Of nothing there are as many chunks as of anything."""
    return lambda x: [part * 2 for part in x.chunk(2)], [(torch.randn(n, 3),) for n in (4, 7, 0)]


@case()
def sequences_and_diagonals():
    def forward(x, y):
        square = torch.zeros(3, 3)
        square.fill_diagonal_(2.5)
        tall = torch.zeros(7, 2, dtype=torch.int64)
        tall.fill_diagonal_(1, wrap=True)
        padded = torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True, padding_value=-1.0)
        return square, tall, padded, torch.special.softmax(x, 1)

    return forward, [(torch.randn(3, 3), torch.randn(5, 3))]


@case(**ROWS)
def quantized_linear():
    """As PyTorch's quantisation writes it: integer weights by channel, and a dynamic range for the activations."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines the operators)

    q = torch.ops.quantized_decomposed
    weight = torch.randint(-127, 128, (6, 8), dtype=torch.int8)
    scales, zeros = torch.rand(6) / 50 + 0.01, torch.zeros(6, dtype=torch.int64)

    def forward(x):
        w = q.dequantize_per_channel(weight, scales, zeros, 0, -127, 127, torch.int8)
        scale, zero = q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        quantized = q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        x = q.dequantize_per_tensor.tensor(quantized, scale, zero, 0, 255, torch.uint8)
        fixed = q.quantize_per_tensor(F.linear(x, w), 0.05, 3, -128, 127, torch.int8)
        rows, shifts = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        tokens = q.quantize_per_token(x, rows, shifts, -128, 127, torch.int8)
        return quantized, fixed, q.dequantize_per_tensor(fixed, 0.05, 3, -128, 127, torch.int8), tokens

    return forward, [(torch.randn(n, 8) * 2,) for n in (3, 1)]


@case()
def quantized_products():
    channels = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 5, -2], dtype=torch.int32)

    def forward(x, a, b):
        fake = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127)
        each = torch.fake_quantize_per_channel_affine(x, *channels, 0, -128, 127)
        return torch._int_mm(a, b), fake, each

    integers = lambda *shape: torch.randint(-128, 128, shape, dtype=torch.int8)
    return forward, [(torch.randn(3, 4) * 20, integers(32, 24), integers(24, 16))]


@case()
def quantized_blocks():
    """Pairs for blocks of a row, as torchao writes it (which this case needs)."""
    from torchao.quantization import quant_primitives  # noqa: F401

    q = torch.ops.torchao

    def forward(x):
        scale, zero = q.choose_qparams_affine(x, "ASYMMETRIC", [1, 4], torch.int8, -8, 7, None, torch.float32, torch.int32)
        y = q.quantize_affine(x, [1, 4], scale, zero, torch.int8, -8, 7)
        even, none = q.choose_qparams_affine(x, "SYMMETRIC", [1, 8], torch.int8)
        whole = q.quantize_affine(x, [1, 8], even, none, torch.int8)
        return y, q.dequantize_affine(y, [1, 4], scale, zero, torch.int8, -8, 7), whole, even

    return forward, [(torch.randn(3, 8),), (torch.randn(3, 8).abs() + 1,)]


@case()
def autocast():
    """Products in bfloat16, losses in float32, what is put together in the widest; off again within."""
    weight, kernel = torch.randn(6, 8), torch.randn(3, 2, 3, 3)

    def forward(x, image):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, weight)
            z = F.conv2d(image, kernel).flatten(1).mean(1)
            joined = torch.cat([y, x[:, :2]], 1)
            with torch.autocast("cpu", enabled=False):
                exact = x @ weight.t()
            return y, z, joined, exact, F.mse_loss(y, y.roll(1, 0)), y.softmax(-1), torch.einsum("ik,jk->ij", x, weight)

    return forward, [(torch.randn(3, 8), torch.randn(1, 2, 6, 6))]


@case()
def histograms_of_equals():
    """All numbers equal: the range grows by a half at each end, in histc by one."""

    def forward(x):
        counts, edges = torch.histogram(x, 2)
        return counts, edges, torch.histogramdd(x[:, None], [1])[1][0], torch.histc(x, 3)

    return forward, [(torch.full((4,), 1.5),), (torch.tensor([0.0, 1.0, 2.0, 2.0]),)]


@case(x={0: torch.export.Dim.AUTO})
def combinations_of_some():
    return lambda x: (torch.combinations(x), torch.combinations(x, 3, with_replacement=True)), [(torch.randn(n),) for n in (4, 1, 6)]


@case()
def complex_window():
    window = torch.polar(torch.hann_window(8) + 0.5, torch.arange(8.0))

    def forward(x):
        spectrum = torch.stft(torch.view_as_complex(x), 8, 4, window=window, return_complex=True)
        return torch.view_as_real(torch.istft(spectrum, 8, 4, window=window, return_complex=True))

    return forward, [(torch.randn(2, 16, 2),)]


@case()
def boxes():
    """Boxes that overlap, and features of regions, some beyond the edge (needs torchvision)."""
    import torchvision

    def forward(boxes, scores, image):
        kept = torchvision.ops.nms(boxes, scores, 0.3)
        regions = [boxes[:5]]
        aligned = torchvision.ops.roi_align(image, regions, (3, 2), 0.5, 2, True)
        return kept, boxes[kept], aligned, torchvision.ops.roi_align(image, regions, 2, 1.0, 1)

    def call():
        corner = torch.rand(12, 2) * 14 - 2
        return torch.cat([corner, corner + 1 + torch.rand(12, 2) * 8], 1), torch.rand(12), torch.randn(1, 2, 10, 8)

    return forward, [call() for _ in range(3)]


@case()
def windows_longer_than_inputs():
    """Pooling with `ceil_mode` by windows of a million elements over a few: what is past the padded input takes no time, and counts for nothing."""

    def forward(x):
        average = lambda *args: F.avg_pool2d(x, *args)
        most = F.max_pool2d(x, (1500, 1), (1500, 2), ceil_mode=True, return_indices=True)
        padded = average((1000, 3), (1000, 2), (400, 1), True), average(900, 899, 3, True, False)
        return average(1000, None, 0, True), padded, average(99, 99, 1, True, True, 5), most

    return forward, [(torch.randn(2, 3, 6, 5),) for _ in range(2)]


@case()
def deformable_convolution():
    """Taps that data moves, some beyond the edge: with and without a mask, groups of channels and of offsets, strides and dilations (needs torchvision)."""
    from torchvision.ops import deform_conv2d

    def forward(image, offset, mask, weight, bias, coarse, narrow):
        plain = deform_conv2d(image, offset, weight, bias, padding=(1, 0), mask=mask)
        grouped = deform_conv2d(image, coarse, narrow, stride=(2, 1), padding=(0, 2), dilation=(1, 2))
        return plain, grouped, deform_conv2d(image.double(), offset.double(), weight.double(), padding=(1, 0))

    def call():
        spread = lambda *shape: torch.randn(*shape) * 2
        return (
            torch.randn(2, 4, 6, 5), spread(2, 18, 6, 3), torch.rand(2, 9, 6, 3), torch.randn(3, 4, 3, 3), torch.randn(3),
            spread(2, 24, 2, 7), torch.randn(6, 2, 3, 2) * 0.5,
        )

    return forward, [call() for _ in range(3)]


@case()
def rows_of_bytes():
    """A product with int8 rows and a scale for each, as weight-only quantisation leaves it."""

    def forward(x, rows, scales):
        return torch.ops.aten._weight_int8pack_mm(x, rows, scales)

    call = lambda: (torch.randn(3, 24).bfloat16(), torch.randint(-127, 128, (16, 24), dtype=torch.int8), torch.rand(16).bfloat16())
    return forward, [call() for _ in range(3)]


@case()
def scan_by_halves():
    """`associative_scan`, whose last step maps over a batch of no elements."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def forward(x):
        return associative_scan(lambda p, q: p * q + q, x, 1, combine_mode="generic")

    return forward, [(torch.rand(2, 4, 3),) for _ in range(2)]


@case()
def out_arguments():
    """Results written where `out` says, a view of a longer tensor among them."""

    def forward(x, y):
        product, sums, row = torch.empty(4, 4), torch.zeros(4), torch.zeros(3, 4)
        torch.mm(x, y, out=product)
        torch.sum(x, 1, out=sums)
        torch.add(x[0], y[1], out=row[1])
        return product, sums, row

    return forward, [(torch.randn(4, 4), torch.randn(4, 4))]


@case()
def lanczos():
    return lambda x: [F.interpolate(x, size=size, mode="lanczos", antialias=True) for size in ((4, 15), (11, 3))], [(torch.randn(1, 2, 9, 8),)]


@case()
def functional_batch_norm():
    """As run_decompositions leaves it: the running statistics come back, wider than they are kept."""

    def forward(x, mean, variance):
        y, _, _, mean, variance = torch.ops.aten._native_batch_norm_legit_functional(x, None, None, mean, variance, True, 0.1, 1e-5)
        return y, mean.to(torch.bfloat16), variance.to(torch.bfloat16)

    call = lambda: (torch.randn(4, 3, 5).bfloat16(), torch.randn(3).bfloat16(), torch.rand(3).bfloat16() + 1)
    return forward, [call(), call()]


class WritesWeights(nn.Module):
    """Writes a parameter, as a running mean that is not a buffer does."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.arange(3.0), requires_grad=False)
        self.register_buffer("kept", torch.ones(3))

    def forward(self, x):
        self.scale.add_(1)
        return self.scale * x + self.kept


@case()
def writes_weights():
    return WritesWeights(), [(torch.randn(3),) for _ in range(3)]


class StridedViews(nn.Module):
    """The buffers are parts of one storage, as those of a flattened module are."""

    def __init__(self):
        super().__init__()
        whole = torch.arange(12.0)
        self.register_buffer("low", whole[:4])
        self.register_buffer("high", whole[4:10])

    def forward(self, x):
        y, z = x.clone(), x[3:]
        y[2:].as_strided((3,), (2,)).fill_(9)
        part = self.high.as_strided((2,), (2,)), self.high.as_strided((2,), (3,), 5)
        return y, z.as_strided((2,), (1,)), z.as_strided((2,), (1,), 1), x.view(3, 4)[1:].as_strided((2, 2), (1, 4)), part, self.low


@case()
def strided_views():
    return StridedViews(), [(torch.arange(12.0),)]


@case()
def views_in_place():
    def forward(x):
        y = x.clone()
        z = y.view(3, 3)
        y.swapaxes_(0, 1)
        y[0] = 5
        w = z.clone()
        flat = w.view(-1)
        w.swapdims_(0, 1).unsqueeze_(0).squeeze_(0).t_()
        return y, z, w, flat

    return forward, [(torch.arange(9.0).view(3, 3),)]


@case(x={0: torch.export.Dim("n")}, step=None)
def sizes_from_data():
    """Sizes that fall as a count grows, and kernels that need a number read between them."""

    def forward(x, step):
        picked = x[x > 3]
        rest = torch.ones(x.shape[0] - picked.shape[0])
        part = torch.ones(picked.shape[0] % 5)
        k = step.item()
        torch._check(k > 0)
        torch._check(k < 100)
        y = x.exp()
        sums = y.sum() + k, (y * k).sum(), rest.cumsum(0).flip(0).sort()[0], part.cumsum(0).flip(0)
        where = (y > 20).nonzero()[:, 0]
        return y, sums, y[where] * 2, y * where.shape[0], picked

    x, step = torch.arange(12.0) / 2, torch.tensor(3)
    refusals = [refused("a check of the program", x, torch.tensor(0))]
    return forward, [(x, step), (x * 0, step), *refusals, (x + 9, torch.tensor(99)), (x[:5], step)]


@case()
def clamps_of_integers():
    def forward(x, y):
        free = [x.clamp(min=-3), x.clamp(max=300), x.clamp(-3, 9), F.hardtanh(x, -300, 6), x.clamp_(min=-1)]
        return *free, y.clamp(-300, 300), y.clamp(-128, 127), y.clamp(max=-7)

    return forward, [(torch.tensor([0, 5, 255], dtype=torch.uint8), torch.tensor([-128, 0, 127], dtype=torch.int8))]


@case(x={0: torch.export.Dim.AUTO})
def nothing_has_no_extreme():
    def forward(x):
        return x.amax(0), x.max(), x.argmin(0), x.min(0), torch.aminmax(x), x.unfold(0, 2, 1)

    x = torch.randn(4)
    return forward, [(x,), refused("no element", x[:0]), refused("no window of two", x[:1]), (x[:3],)]


@case(x={0: torch.export.Dim.AUTO}, y={0: torch.export.Dim.AUTO})
def relations_of_sizes():
    """What `torch._check` asks of two sizes, of a maximum, of a difference."""

    def forward(x, y):
        torch._check(y.shape[0] % x.shape[0] == 0)
        torch._check(max(x.shape[0], y.shape[0]) <= 12)
        torch._check(abs(x.shape[0] - y.shape[0]) < 8)
        return x.sum(0) + y.sum(0)

    sized = lambda n, m: (torch.randn(n, 3), torch.randn(m, 3))
    return forward, [
        sized(2, 6), sized(4, 4), refused("does not divide", *sized(4, 6)), refused("too long", *sized(7, 14)), refused("too far apart", *sized(2, 12)), sized(6, 12),
    ]


@case(x={0: torch.export.Dim.AUTO})
def integrals_of_nothing():
    forward = lambda x: (torch.trapezoid(x, dim=0), torch.cumulative_trapezoid(x, dim=0), torch.trapezoid(x, x * 2, dim=0), torch.diff(x, dim=0))
    return forward, [(torch.randn(n, 3),) for n in (4, 0, 1, 2)]


@case(x={2: torch.export.Dim.AUTO}, y={2: torch.export.Dim.AUTO})
def nothing_to_pool_or_pad():
    """Averages of nothing are NaN where there is one window; copies of nothing are refused."""

    def forward(x, y):
        return F.adaptive_avg_pool1d(x, 1), F.pad(y, (1, 1), mode="replicate"), F.adaptive_max_pool1d(y, 2), torch.linalg.vector_norm(y, math.inf, dim=-1)

    sized = lambda n, m: (torch.randn(1, 2, n), torch.randn(1, 2, m))
    return forward, [sized(4, 6), sized(0, 3), refused("nothing to copy", *sized(4, 0)), sized(1, 1)]


@case()
def bits_in_other_sizes():
    """One memory seen as dtypes of several sizes, and written through them."""

    def forward(x, b):
        y = x.clone()
        y.view(torch.int16)[0, 1] = 7
        y.view(torch.uint8)[1] = 255
        z = torch.view_as_complex(x.view(2, 2, 2))
        return y, x.view(torch.float64), x.view(torch.uint8), b.view(torch.int32), b.view(torch.bfloat16).float(), z.view(torch.int64)

    return forward, [(torch.randn(2, 4), torch.arange(-12, 12, dtype=torch.int8).view(3, 8))]


@case()
def windows_that_overlap():
    """A write to one window of several that share elements leaves what only the others hold."""

    def forward(x):
        y = x.clone()
        windows = y.unfold(0, 3, 1)
        windows[1] += 10
        windows[2, 0] = 0
        return y, windows

    return forward, [(torch.randn(6),)]


@case(carry=None, xs={0: torch.export.Dim.AUTO})
def rounds_of_unknown_number():
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.map import map as mapped
    from torch._higher_order_ops.scan import scan

    def forward(carry, xs):
        last, steps = scan(lambda c, x: (c * 0.5 + x, c.tanh()), carry, xs)
        return last, steps, mapped(lambda x, y: x * y.sum(), xs, carry), associative_scan(lambda a, b: a + b, xs, 0)

    return forward, [(torch.randn(3), torch.randn(n, 3)) for n in (4, 1, 2, 9)]


@case()
def segments():
    def forward(x, lengths, offsets):
        return torch.segment_reduce(x, "mean", lengths=lengths, axis=0), torch.segment_reduce(x, "sum", offsets=offsets, axis=0)

    x, tensor = torch.randn(6, 2), torch.tensor
    return forward, [
        (x, tensor([2, 0, 4]), tensor([0, 2, 6])),
        refused("lengths that do not add up", x, tensor([2, 3, 3]), tensor([0, 2, 6])),
        refused("offsets that fall", x, tensor([2, 0, 4]), tensor([0, 4, 2])),
        (x, tensor([6, 0, 0]), tensor([1, 1, 5])),
    ]


@case()
def minus_one_unsigned():
    """-1 as uint8 is 255 wherever it is read."""

    def forward(x, n):
        return torch.full((2,), -1, dtype=torch.uint8) + x, torch.full((2,), -1, dtype=torch.uint8).half() * n

    return forward, [(torch.randn(2).half(), torch.tensor(2.0))]


@case()
def clamp_out_of_range():
    return lambda x: x.clamp(max=1e9), [refused("1e9 is no float16", torch.randn(2).half())]


@case()
def triangular_systems():
    def forward(a, b, x):
        lower = torch.linalg.cholesky_ex(a @ a.mT + torch.eye(4))[0]
        normal = torch.distributions.MultivariateNormal(x[0], scale_tril=lower[0], validate_args=False)
        return (
            torch.linalg.solve_triangular(lower, b, upper=False), torch.linalg.solve_triangular(lower.mT, b.mT, upper=True, left=False),
            torch.linalg.solve_triangular(lower, b, upper=False, unitriangular=True), torch.cholesky_solve(b, lower), torch.cholesky_solve(b, lower.mT, upper=True),
            torch.linalg.inv_ex(lower)[0], torch.linalg.solve_ex(lower, b)[0], torch.linalg.matrix_rank(a[:, :, :2] @ a[:, :2]), torch.linalg.cond(lower),
            torch.linalg.cond(lower, 1), torch.linalg.tensorinv(lower[0].view(2, 2, 4)), normal.log_prob(x),
        )

    return forward, [(torch.randn(2, 4, 4), torch.randn(2, 4, 4), torch.randn(3, 4))]


@case()
def scatters_between_layouts():
    """What is written into lies in another order than the result: images with their channels last, heads merged, an output that is transposed."""

    def forward(x, w, q, c):
        y = F.conv2d(x, w)
        y.index_fill_(3, torch.tensor([0]), 5)
        heads = F.scaled_dot_product_attention(q, q, q).transpose(1, 2)
        heads.index_fill_(1, torch.tensor([0]), 5)
        turned = F.gelu(c.permute(2, 1, 0))
        turned.index_fill_(0, torch.tensor([0, 2]), 5)
        return y * 1, y.sum(), heads, heads.reshape(1, 5, 16) * 2, turned

    return forward, [(torch.randn(1, 2, 6, 6).half(), torch.randn(4, 2, 3, 3).half(), torch.randn(1, 2, 5, 8), torch.randn(2, 5, 3))]


@case()
def vmap_levels():
    """`torch.vmap`, also of what is not batched, and four levels of it as for attention masks."""

    def forward(x, y):
        visible = lambda b, h, q, k: (q >= k) & (q - k < 3)
        for level in range(4):
            visible = torch.vmap(visible, in_dims=tuple(0 if i == 3 - level else None for i in range(4)), out_dims=0)
        places = torch.arange(6)
        mask = visible(places[:1], places[:2], places, places)
        return torch.vmap(torch.dot)(x, y), torch.vmap(torch.matmul, in_dims=(0, None))(x, y.t()), torch.vmap(lambda a, b: torch.where(a > b, a, b).cumsum(0))(x, y), mask

    return forward, [(torch.randn(4, 3), torch.randn(4, 3))]


@case(x=None, y=None, like={0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO})
def antialiased_columns():
    """Of a result that is one column, PyTorch's kernels repeat the first row, but not where the channels are last."""

    def forward(x, y, like):
        return [F.interpolate(t, size=like.shape, mode="bilinear", antialias=True) for t in (x, y)]

    x, y = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8).to(memory_format=torch.channels_last)
    return forward, [(x, y, torch.zeros(*size)) for size in ((5, 7), (8, 1), (6, 1), (1, 1), (1, 4))]


@case()
def slices_into_gaps():
    """A scatter by strides into a tensor whose memory has gaps: what lands there is gone."""
    x = torch.empty_strided((3, 3), (6, 2)).copy_(torch.randn(3, 3))
    return lambda x, source: torch.as_strided_scatter(x, source, (2, 2), (1, 2), 1), [(x, torch.randn(2, 2))]


class FusedEncoder(nn.Module):
    """Encoder layers as the one operator that PyTorch runs them by when it only infers."""

    def __init__(self):
        super().__init__()
        self.before = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=True, activation="gelu")
        self.after = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def layer(self, m, x, *mask):
        own = m.self_attn
        return torch._transformer_encoder_layer_fwd(
            x, 8, 2, own.in_proj_weight, own.in_proj_bias, own.out_proj.weight, own.out_proj.bias, m.activation_relu_or_gelu == 2, m.norm_first, m.norm1.eps,
            m.norm1.weight, m.norm1.bias, m.norm2.weight, m.norm2.bias, m.linear1.weight, m.linear1.bias, m.linear2.weight, m.linear2.bias, *mask,
        )

    def forward(self, x, padding, causal):
        hidden = torch.where(padding, -math.inf, 0.0)
        return self.layer(self.before, x), self.layer(self.before, x, causal, 0), self.layer(self.after, x, padding, 1), self.layer(self.after, x, hidden, 1)


@case()
def fused_encoder():
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    return FusedEncoder(), [(torch.randn(2, 5, 8), padding, torch.ones(5, 5, dtype=torch.bool).triu(1))]


@case(x={0: torch.export.Dim("n")})
def indices_into_nothing():
    def forward(x):
        index = torch.tensor([0, -1])
        return x[index], x.take(index), x.index_add(0, index + 1, torch.ones(2)), x.sum()

    x = torch.randn(4)
    return forward, [(x,), refused("no element", x[:0]), (x[:2],)]


class Solver(nn.Module):
    """Small matrices (batched, float32) and a larger one (float64), and a count of the calls that did not fail."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x, y, z):
        self.count += 1
        results = []
        for a, b in ((x, y), (z, z[:, :2])):
            definite = a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)
            results += [torch.linalg.inv(a), torch.linalg.solve(a, b), torch.det(a), *torch.linalg.slogdet(a)]
            results += [torch.linalg.matrix_exp(a), torch.linalg.cholesky(definite)]
        return *results, self.count


@case(x={0: torch.export.Dim("n")}, y={0: torch.export.Dim("n")}, z=None)
def linear_systems():
    x, y, z = torch.randn(3, 5, 5) + torch.eye(5), torch.randn(3, 5, 2), torch.randn(13, 13, dtype=torch.float64)
    singular = x.clone()
    singular[1, 3] = 0
    refusals = [refused("a singular matrix", singular, y, z), refused("a singular matrix", x, y, z * 0)]
    return Solver(), [(x, y, z), *refusals, (x[:1] * 3, y[:1], z.T * 0.5)]


@case(x={0: torch.export.Dim("n")}, z=None)
def decompositions():
    """Of small matrices and of a larger one, tall and wide. The signs of vectors are anybody's, but for those of QR."""

    def forward(x, z):
        results = []
        for a in (x, z):
            values, vectors = torch.linalg.eigh(a + a.mT)
            results += [values, vectors * values.unsqueeze(-2) @ vectors.mT]
            for part in (a[..., :3], a[..., :3, :]):
                u, s, vh = torch.linalg.svd(part, full_matrices=False)
                results += [s, u * s.unsqueeze(-2) @ vh, u.mT @ u, *torch.linalg.qr(part)]
        return results

    x, z = torch.randn(3, 5, 5), torch.randn(13, 13, dtype=torch.float64)
    return forward, [(x, z), (x[:1] * 0.1, z.T)]


@case()
def singular_values_of_zeros():
    """Vectors of singular values that are zero, and of a matrix with two equal columns."""

    def forward(x):
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        return s, u * s.unsqueeze(-2) @ vh, u.mT @ u, vh @ vh.mT

    x = torch.randn(2, 6, 3, dtype=torch.float64)
    x[0, :, 2] = x[0, :, 0]
    x[1] = 0
    return forward, [(x,)]


@varlen._varlen_attn.register_kernel("cpu")
def packed_attention(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, scale=None, window_size=None, *others, **options):
    """PyTorch has the operator for GPUs alone; here, each sequence by scaled_dot_product_attention, and zeros for tokens outside of all."""
    left, right = window_size
    out = torch.zeros_like(query[..., :1]).repeat(1, 1, value.shape[-1])
    for (q0, q1), (k0, k1) in zip(cu_seq_q.unfold(0, 2, 1).tolist(), cu_seq_k.unfold(0, 2, 1).tolist()):
        far = torch.arange(k1 - k0) - torch.arange(q1 - q0).unsqueeze(1) - (k1 - k0 - q1 + q0)
        seen = ((far >= -left) | (left < 0)) & ((far <= right) | (right < 0))
        operands = query[q0:q1], key[k0:k1], value[k0:k1]
        operands = [x.float().transpose(0, 1).unsqueeze(0) for x in operands]
        part = F.scaled_dot_product_attention(*operands, attn_mask=seen, scale=scale, enable_gqa=True)
        out[q0:q1] = part[0].transpose(0, 1).nan_to_num(0).to(out.dtype)
    return out, torch.empty(0), torch.empty(0)


class Packed(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.register_buffer("count", torch.zeros(2))

    def forward(self, query, key, value, bounds, key_bounds):
        self.count += 1
        out = varlen.varlen_attn(query, key, value, bounds, key_bounds, 9, 9, **self.options)
        return out, self.count


@case()
def packed_sequences():
    """Sequences of other lengths than their keys, an empty one, tokens outside of all of them, and bounds that are refused."""
    query, key, value = torch.randn(14, 4, 40), torch.randn(17, 2, 40), torch.randn(17, 2, 40)
    query[12:], key[15:], value[15:] = math.nan, math.nan, math.nan
    query, key, value = query.half(), key.half(), value.half()
    bounds = lambda *at: torch.tensor(at, dtype=torch.int32)
    calls = [(bounds(0, 3, 3, 12), bounds(0, 9, 10, 15)), (bounds(1, 2, 9, 12), bounds(2, 4, 4, 13))]
    calls += [refused("bounds that fall", bounds(0, 5, 3, 12), bounds(0, 9, 10, 15))]
    calls += [refused("more keys than there are", bounds(0, 3, 3, 12), bounds(0, 9, 10, 18)), calls[0]]
    given = []
    for call in calls:
        args = (query, key, value, *call)
        given.append(refused(call.reason, *args) if isinstance(call, Refused) else args)
    return Packed(window_size=(3, 0), enable_gqa=True), given


def main():
    for name in sys.argv[1:] or CASES:
        record(name, *CASES[name])
        print(name, flush=True)


if __name__ == "__main__":
    main()
