// Sorting rows of any length, stably, digit by digit from the lowest (LSD radix sort). A pass has three launches: the digits of every tile are
// counted; the counts of one digit are summed up over the tiles before; each tile sorts itself by the digit in shared memory and puts its
// runs where they belong. Nothing depends on the order of blocks.

template <class Key, int ITEMS = sizeof(Key) == 8 ? 8 : 16> struct Radix {
  static const int DIGITS = 256, THREADS = 256, WARPS = THREADS / 32;
  static const int TILE = THREADS * ITEMS;
  static DEVICE uint32 digit(Key key, int shift) { return (uint32)(key >> shift) & (DIGITS - 1); }

  // The lanes that have the same digit, by a vote on each bit: matching takes as long as there are different digits.
  static DEVICE uint32 lanes_of(uint32 digit) {
    uint32 same = 0xffffffffu;
#pragma unroll
    for (int bit = 1; bit < DIGITS; bit *= 2) {
      const bool set = (digit & bit) != 0;
      const uint32 votes = __ballot_sync(0xffffffffu, set);
      same &= set ? votes : ~votes;
    }
    return same;
  }

  // `counts` of a row: by digit, then by tile. Block b has tile b % tiles of row b / tiles; key(i) is the row's.
  template <class At> static DEVICE void count(int64 n, int64 tiles, int shift, At key, uint32 *counts) {
    __shared__ uint32 found[DIGITS];
    found[threadIdx.x] = 0;
    __syncthreads();
    const int64 tile = blockIdx.x % tiles, start = tile * TILE;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int64 at = start + i * THREADS + threadIdx.x;
      if (at < n) atomicAdd(&found[digit(key(at), shift)], 1u);
    }
    __syncthreads();
    counts[(blockIdx.x / tiles * DIGITS + threadIdx.x) * tiles + tile] = found[threadIdx.x];
  }

  // Each warp has a digit of a row: its counts become the sums of those before, `totals` the sum of all.
  static DEVICE void sum(int64 pairs, int64 tiles, uint32 *counts, uint32 *totals) {
    const int64 pair = blockIdx.x * (int64)WARPS + threadIdx.x / 32;
    if (pair >= pairs) return;
    const int lane = threadIdx.x % 32;
    uint32 before = 0;
    for (int64 base = 0; base < tiles; base += 32) {
      const bool there = base + lane < tiles;
      const uint32 own = there ? counts[pair * tiles + base + lane] : 0;
      const uint32 sum = Across<PlainSum<uint32>, WarpLanes>::scan(own);
      if (there) counts[pair * tiles + base + lane] = before + sum - own;
      before += Across<PlainSum<uint32>, WarpLanes>::last(sum);
    }
    if (lane == 0) totals[pair] = before;
  }

  // Calls out(place, key, index) for each item of the tile.
  template <class At, class IndexAt, class Out>
  static DEVICE void place(int64 n, int64 tiles, int shift, At key, IndexAt index, const uint32 *counts, const uint32 *totals, Out out) {
    __shared__ uint32 ranks[WARPS][DIGITS];
    __shared__ uint32 starts[DIGITS];
    // Where a digit's run goes, less where it begins in the tile. It wraps around.
    __shared__ uint32 bases[DIGITS];
    __shared__ Key keys[TILE];
    __shared__ uint32 indices[TILE];
    const int64 row = blockIdx.x / tiles, tile = blockIdx.x % tiles, start = tile * TILE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * 32 * ITEMS + lane;
    const int count = (int)smaller<int64>(TILE, n - start);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) ranks[w][threadIdx.x] = 0;
    Key own[ITEMS];
    uint32 rank[ITEMS];
#pragma unroll
    // What is not there comes last.
    for (int i = 0; i < ITEMS; ++i) own[i] = first + i * 32 < count ? key(start + first + i * 32) : (Key)~(Key)0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const uint32 mine = digit(own[i], shift), same = lanes_of(mine);
      rank[i] = ranks[warp][mine] + __popc(same & ((1u << lane) - 1));
      __syncwarp();
      if (same >> lane == 1) ranks[warp][mine] = rank[i] + 1;
      __syncwarp();
    }
    __syncthreads();
    uint32 sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const uint32 found = ranks[w][threadIdx.x];
      ranks[w][threadIdx.x] = sum;
      sum += found;
    }
    // Both at once: the digit's items in the tile, and in the row.
    const int64 pair = row * DIGITS + threadIdx.x, both = (int64)totals[pair] << 32 | sum;
    const int64 before = Across<PlainSum<int64>, BlockLanes<THREADS> >::scan(both) - both;
    starts[threadIdx.x] = (uint32)before;
    bases[threadIdx.x] = (uint32)(before >> 32) + counts[pair * tiles + tile] - (uint32)before;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const uint32 mine = digit(own[i], shift), at = starts[mine] + ranks[warp][mine] + rank[i];
      keys[at] = own[i];
      indices[at] = first + i * 32 < count ? index(start + first + i * 32) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int at = i * THREADS + threadIdx.x;
      if (at < count) out((int64)(uint32)(bases[digit(keys[at], shift)] + at), keys[at], indices[at]);
    }
  }
};
