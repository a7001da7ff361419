// Reductions of segments of rows.

// Raises CODE for each pair of offsets that does not delimit a segment. By a block.
template <int THREADS, int CODE, class First, class Last>
DEVICE void check_segments(ErrorFlag *flag, int64 segments, int64 rows, First first, Last last) {
  for (int64 s = threadIdx.x; s < segments; s += THREADS) {
    const int64 start = first(s), end = last(s);
    if (start < 0 || end < start || end > rows) raise(flag, CODE, 0, start, end);
  }
}

// One element of a segment's result: lanes take its rows in turns, and are combined in one fixed order. Offsets that are wrong give an empty
// segment. A mean is divided by the number of rows; of none, without an initial value, it is NaN.
template <class Op, class Lanes, bool MEAN, bool INITIAL, class R, class Row>
DEVICE R segment(int64 first, int64 last, int64 rows, R initial, Row row) {
  typename Op::Accumulator sum = Op::neutral();
  const bool sound = first >= 0 && last <= rows && first < last;
  const int64 end = sound ? last : 0;
  for (int64 i = (sound ? first : 0) + Lanes::lane(); i < end; i += Lanes::COUNT) Op::take(sum, row(i));
  sum = Across<Op, Lanes>::reduce(sum);
  if (INITIAL) Op::take(sum, initial);
  const R result = Op::result(sum);
  if (!MEAN) return result;
  if (sound) return result / (R)(last - first);
  return INITIAL ? result : (R)NAN_D;
}
