// Sorting rows, stably; compaction; searching.

// Unsigned keys in the order of values: NaN is the largest, -0 equals 0. Descending: turned around.
template <class T> struct SortKey {
  typedef typename Word<sizeof(T) < 4 ? 4 : sizeof(T)>::type Key;
  // From 0 on, so that short integers have short keys.
  static DEVICE Key key(T x) { return (Key)x - (Key)Limits<T>::lowest(); }
};
template <> struct SortKey<bool> {
  typedef uint32 Key;
  static DEVICE uint32 key(bool x) { return x; }
};
template <> struct SortKey<float> {
  typedef uint32 Key;
  static DEVICE uint32 key(float x) {
    if (x != x) return 0xffffffffu;
    uint32 bits = x == 0 ? 0u : __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
  }
};
template <> struct SortKey<double> {
  typedef uint64 Key;
  static DEVICE uint64 key(double x) {
    if (x != x) return ~0ull;
    uint64 bits = x == 0 ? 0ull : (uint64)__double_as_longlong(x);
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
  }
};

template <class Key> struct Sorted {
  Key key;
  uint32 index;
};
template <class Key> DEVICE bool before(const Sorted<Key> &a, const Sorted<Key> &b) {
  return a.key < b.key || (a.key == b.key && a.index < b.index);
}

// Sorts a tile of shared memory with a block, between barriers.
template <int THREADS, int TILE, class Item> DEVICE void sort_tile(Item *tile) {
  for (int size = 2; size <= TILE; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < TILE / 2; i += THREADS) {
        int low = 2 * step * (i / step) + i % step, high = low + step;
        bool up = (low & size) == 0;
        if (before(tile[high], tile[low]) == up) {
          Item x = tile[low];
          tile[low] = tile[high];
          tile[high] = x;
        }
      }
    }
  }
  __syncthreads();
}

// Sorts a row of `n`, TILE at most, with a block. Calls out(place, index) for the first `wanted`.
template <int THREADS, int TILE, bool DESCENDING, class R, class In, class Out>
DEVICE void sort_row(int n, int64 wanted, In in, Out out) {
  typedef typename SortKey<R>::Key Key;
  typedef Sorted<Key> Item;
  __shared__ Item tile[TILE];
  for (int i = threadIdx.x; i < TILE; i += THREADS) {
    // What fills the tile comes after everything.
    tile[i] = Item{(Key)~(Key)0, 0xffffffffu};
    if (i < n) {
      Key key = SortKey<R>::key(in(i));
      tile[i] = Item{DESCENDING ? (Key)~key : key, (uint32)i};
    }
  }
  sort_tile<THREADS, TILE>(tile);
  for (int i = threadIdx.x; i < wanted; i += THREADS) out(i, tile[i].index);
}

// The first position in a sorted row where a value could stand; with RIGHT, after its equals.
template <bool RIGHT, class R, class At> DEVICE int64 search_sorted(int64 n, R value, At at) {
  int64 low = 0, high = n;
  while (low < high) {
    int64 middle = (low + high) / 2;
    R x = at(middle);
    if (RIGHT ? !(x > value) : !(x >= value)) low = middle + 1; else high = middle;
  }
  return low;
}

// Compaction in two launches of BLOCKS blocks of 256 threads, each with its share of the elements, of which threads take 8 neighbours at a
// time: counts, then places. counts[0] becomes the number of all, counts[1 + b] block b's.
struct Shares {
  static const int ITEMS = 8, STEP = 256 * ITEMS;
  int64 start, end;
  DEVICE Shares(int64 n, int blocks) {
    const int64 share = (n + blocks - 1) / blocks;
    start = smaller<int64>(blockIdx.x * share, n);
    end = smaller<int64>(start + share, n);
  }
  // The elements of a thread that are set, as bits.
  template <class Mask> DEVICE uint32 set(int64 first, Mask mask) const {
    uint32 bits = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) bits |= (uint32)(first + k < end && mask(first + k)) << k;
    return bits;
  }
};
template <int BLOCKS, class Mask> DEVICE void count_true(int64 n, Mask mask, int64 *counts) {
  const Shares shares(n, BLOCKS);
  int64 count = 0;
  for (int64 first = shares.start + threadIdx.x * Shares::ITEMS; first < shares.end; first += Shares::STEP)
    count += __popc(shares.set(first, mask));
  count = Across<PlainSum<int64>, BlockLanes<256> >::reduce(count);
  if (threadIdx.x == 0) counts[1 + blockIdx.x] = count;
}
template <int BLOCKS, class Mask, class Out> DEVICE void place_true(int64 n, Mask mask, int64 *counts, Out out) {
  typedef Across<PlainSum<int64>, BlockLanes<256> > Block;
  int64 before = 0, all = 0;
  for (int b = threadIdx.x; b < BLOCKS; b += 256) {
    all += counts[1 + b];
    if (b < (int)blockIdx.x) before += counts[1 + b];
  }
  before = Block::reduce(before);
  all = Block::reduce(all);
  if (blockIdx.x == 0 && threadIdx.x == 0) counts[0] = all;
  const Shares shares(n, BLOCKS);
  for (int64 base = shares.start; base < shares.end; base += Shares::STEP) {
    const int64 first = base + threadIdx.x * Shares::ITEMS;
    uint32 bits = shares.set(first, mask);
    int64 total;
    int64 place = before + Block::before(__popc(bits), total);
    before += total;
    for (; bits != 0; bits &= bits - 1) out(place++, first + __ffs(bits) - 1);
  }
}
