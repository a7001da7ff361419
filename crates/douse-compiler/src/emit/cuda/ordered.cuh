// Kernels whose points are taken in order: which of several changes of an element comes first.

// Which of COUNT threads an element belongs to: one thread makes all changes of an element, in order.
template <uint32 COUNT> DEVICE uint32 owner_of(int64 index) {
  return (uint32)(((uint64)index * 0x9E3779B97F4A7C15ull) >> 40) % COUNT;
}
// The lanes of a warp that have the same place as a lane. Matching takes long where places differ, as they mostly do: each lane leaves its
// number in a slot of its place's, and where every lane finds its own there, no two are equal.
const int PLACE_SLOTS = 2048;
template <class Place> DEVICE uint32 lanes_of_place(Place place, uint8 *slots) {
  const uint32 lane = threadIdx.x % 32;
  const uint32 slot = (uint32)(((uint64)place * 0x9E3779B97F4A7C15ull) >> 53);
  if (place >= 0) slots[slot] = (uint8)lane;
  __syncwarp();
  const bool alone = place < 0 || slots[slot] == lane;
  return __all_sync(0xffffffffu, alone) ? 1u << lane : __match_any_sync(0xffffffffu, place);
}
// By a warp: each lane has an element to change (-1: none) and its value stands in `values`. Of those of one element the first lane takes
// all, in the order of lanes.
template <class Op, class T, class Place> DEVICE void update_in_order(T *a, Place place, const Register<T> *values, uint8 *slots) {
  const uint32 lane = threadIdx.x % 32, same = lanes_of_place(place, slots);
  if (place >= 0 && (same & ((1u << lane) - 1)) == 0) {
    Register<T> x = load(a + place);
    for (uint32 rest = same; rest != 0; rest &= rest - 1) {
      typename Op::Accumulator sum = x;
      Op::take(sum, values[__ffs(rest) - 1]);
      x = round_to<T>((Register<T>)Op::result(sum));
    }
    store(a + place, x);
  }
  __syncwarp();
}
template <class T, class Place> DEVICE void set_in_order(T *a, Place place, const Register<T> *values, uint8 *slots) {
  const uint32 lane = threadIdx.x % 32, same = lanes_of_place(place, slots);
  if (place >= 0 && same >> lane == 1) store(a + place, values[lane]);
  __syncwarp();
}

// Whether places are neighbours.
template <int N, class Place> DEVICE bool is_run(const Place (&place)[N]) {
  bool run = place[0] >= 0;
#pragma unroll
  for (int k = 1; k < N; ++k) run = run && place[k] == place[0] + k;
  return run;
}
// Sets elements (-1: none).
template <Rounding HOW, class T, int N, class Place> DEVICE void set_run(T *a, const Place (&place)[N], const Register<T> (&value)[N]) {
  if (N > 1 && is_run(place)) return store_vector(a + place[0], pack<HOW, T>(value), N);
#pragma unroll
  for (int k = 0; k < N; ++k) if (place[k] >= 0) store(a + place[k], value[k]);
}
// Claims the bits of elements (-1: none). Whether one was claimed before.
template <int N, class Place> DEVICE bool claim(uint32 *bits, const Place (&place)[N]) {
  if (N > 1 && is_run(place) && (uint32)place[0] % 32 <= 32 - N) {
    const uint32 mask = ((1u << N) - 1) << ((uint32)place[0] % 32);
    return (atomicOr(bits + place[0] / 32, mask) & mask) != 0;
  }
  uint32 taken = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const uint32 mask = 1u << ((uint32)place[k] % 32);
    if (place[k] >= 0) taken |= atomicOr(bits + place[k] / 32, mask) & mask;
  }
  return taken != 0;
}
template <int N, class Place> DEVICE bool claim_first(uint32 *bits, const Place (&place)[N]) {
  const Place first[1] = {place[0]};
  return claim(bits, first);
}

// Points in the order of their keys: `keys` sorted, `order` the steps that have them. The points from `first` on that have its key change
// one element: so many of their values are on the way at once. What LANES is 1 for is a thread's; otherwise a warp has the element's
// neighbours, and all lanes have the same `first`.
template <class Op, class T, int LANES, class Value>
DEVICE void update_by_run(T *element, bool there, int64 first, int64 n, const uint32 *keys, const uint32 *order, Value value) {
  const int AHEAD = 8;
  const uint32 key = keys[first];
  Register<T> x = there ? load(element) : Register<T>();
  for (int64 base = first; base < n; base += LANES > 1 ? LANES : AHEAD) {
    uint32 steps[AHEAD];
    int count = 0;
    if (LANES == 1) {
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        const bool same = base + k < n && keys[base + k] == key;
        steps[k] = same ? order[base + k] : 0;
        count += same;
      }
    }
    const int64 own = base + threadIdx.x % 32;
    const bool same = LANES > 1 && own < n && keys[own] == key;
    const uint32 step = same ? order[own] : 0;
    if (LANES > 1) count = __popc(__ballot_sync(0xffffffffu, same));
    for (int m = 0; m < count; m += AHEAD) {
      Register<T> values[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        if (LANES > 1) steps[k] = __shfl_sync(0xffffffffu, step, (m + k) % 32);
        values[k] = m + k < count ? value((int64)steps[k]) : Register<T>();
      }
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        typename Op::Accumulator sum = x;
        Op::take(sum, values[k]);
        x = m + k < count ? round_to<T>((Register<T>)Op::result(sum)) : x;
      }
    }
    if (count < (LANES > 1 ? LANES : AHEAD)) break;
  }
  if (there) store(element, x);
}
