// Kernels whose points are taken in order: which of several changes of an element comes first.

// Which of COUNT blocks an element belongs to: one makes all changes of an element, in order.
template <uint32 COUNT> DEVICE uint32 owner_of(int64 index) {
  return (uint32)(((uint64)index * 0x9E3779B97F4A7C15ull) >> 40) % COUNT;
}
// Changes of elements: one is made where `place` is not negative.
template <class Op, class T> struct Update {
  static DEVICE void make(T *p, Register<T> x) { update<Op>(p, x); }
};
template <class T> struct Set {
  static DEVICE void make(T *p, Register<T> x) { store(p, x); }
};
// By a warp: the changes of its lanes, those of one element in the order of lanes. Round by round, of the lanes that wait and share a slot the
// lowest goes; `turn` falls from round to round, so that what earlier ones left in the slots is larger.
const uint32 FIRST_TURN = 0xffffffe0u;
template <int SLOTS> DEVICE void clear_slots(uint32 *slots) {
  for (int i = threadIdx.x % 32; i < SLOTS; i += 32) slots[i] = 0xffffffffu;
  __syncwarp();
}
template <class Change, int SLOTS, class T, class Place>
DEVICE void change_in_order(T *a, Place place, Register<T> value, uint32 *slots, uint32 &turn) {
  const uint32 mine = threadIdx.x % 32, slot = (uint32)(((uint64)place * 0x9E3779B97F4A7C15ull) >> 56) % SLOTS;
  bool waits = place >= 0;
  while (__any_sync(0xffffffffu, waits)) {
    if (turn == 0) {
      clear_slots<SLOTS>(slots);
      turn = FIRST_TURN;
    }
    if (waits) atomicMin(slots + slot, turn | mine);
    __syncwarp();
    if (waits && slots[slot] == (turn | mine)) {
      Change::make(a + place, value);
      waits = false;
    }
    turn -= 32;
    __syncwarp();
  }
}

// SHARES warps make the changes of a column, each those of its share of the elements, in order. A tile has 32 points a warp.
template <int SHARES> struct Queues {
  static const int ROWS = 32 * SHARES, PAIRS = SHARES * SHARES, EACH = PAIRS > 32 ? PAIRS / 32 : 1;
  static DEVICE uint32 share_of(int64 place) { return (uint32)(((uint64)place * 0x9E3779B97F4A7C15ull) >> 32) % SHARES; }

  // By a block: each warp gives the points of its part of a column's tile (place -1: none) their places in the queues of `order`, in order. Says
  // where the warp's own queue begins and ends. `counts` are of the shares, and of the parts in each.
  template <class Place> static DEVICE void share(const Place *places, uint32 *counts, uint16 *order, int &begin, int &end) {
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32 % SHARES;
    const Place place = places[part * 32 + lane];
    const uint32 mine = place >= 0 ? share_of(place) : 0;
    uint32 same = __ballot_sync(0xffffffffu, place >= 0);
#pragma unroll
    for (int bit = 1; bit < SHARES; bit *= 2) {
      const uint32 votes = __ballot_sync(0xffffffffu, (mine & bit) != 0);
      same &= (mine & bit) != 0 ? votes : ~votes;
    }
    const int rank = __popc(same & ((1u << lane) - 1));
    if (lane < SHARES) counts[lane * SHARES + part] = 0;
    __syncwarp();
    if (place >= 0 && rank == 0) counts[mine * SHARES + part] = __popc(same);
    __syncthreads();
    uint32 own = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) own += lane * EACH + i < PAIRS ? counts[lane * EACH + i] : 0;
    const uint32 until = Across<PlainSum<uint32>, WarpLanes>::scan(own);
    const auto before = [=](int pair) {
      uint32 sum = __shfl_sync(0xffffffffu, until - own, pair / EACH % 32);
      for (int i = pair / EACH * EACH; i < pair; ++i) sum += counts[i];
      return (int)sum;
    };
    const int at = before(mine * SHARES + part) + rank;
    begin = before(part * SHARES);
    const int next = before((part + 1) % SHARES * SHARES), all = (int)__shfl_sync(0xffffffffu, until, 31);
    end = part + 1 < SHARES ? next : all;
    if (place >= 0) order[at] = (uint16)(part * 32 + lane);
    __syncthreads();
  }
};

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
