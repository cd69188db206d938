-- The gate for several gateways: the commands of gate.rs, one call each, on Redis from 6 on or Valkey.
--
-- gate.rs says what everything means; here is only how it is kept. A run of random commands through both must give the
-- same replies. The store's clock decides; times come in and go out as durations in microseconds.
--
--   KEYS[1]  '{prefix}:'; all keys begin with it. The braces put them in one slot of a cluster, which is why keys that
--            only turn up on the way need not be announced.
--   ARGV     clock ('' = the store's; a test brings its own), command, fields; see gate_wire.rs
--
--   t:TARGET   hash: the breaker    s:SOURCE   hash: rest and buckets    a:ACCOUNT  string: end of the rest
--   i:SOURCE   sorted set: the leases at a source, by expiry; one without a limit may get one tomorrow
--   l:LEASE    string: expiry, epoch, TTL, tokens, length of the source's name, source, target
--
-- Absent keys are fresh state, so a store that lost everything is no error. Every key has a TTL of the store's own, far
-- beyond what it is about: what nobody uses any more vanishes.
--
-- Numbers are doubles: exact up to 2^53. Times since 1970 fit; products that might not go through muldiv.

local NEVER = math.huge
local MINUTE = 60000000
local MAX_DEBT_MINUTES = 5
local DAY = 86400000000
local CLOSED, HALF_OPEN, OPEN = 0, 1, 2
local floor, max, min = math.floor, math.max, math.min
local call = redis.call
local base = KEYS[1]

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Arguments are read one after the other.
local at = 1
local function text()
  at = at + 1
  return ARGV[at]
end
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end

local function digits(n)
  return string.format('%.0f', n)
end

-- a * b / c: whole part and remainder. Exact for |a| < 2^37, b < 2^33 and c < 2^33.
local function muldiv(a, b, c)
  local high = a * floor(b / 65536)
  local q = floor(high / c)
  local low = (high - q * c) * 65536 + a * (b % 65536)
  local rest = floor(low / c)
  return q * 65536 + rest, low - rest * c
end

---------------------------------------------------------------------------------------------------- breakers (G1-G7)

local B_FIELDS = { 's', 'e', 'u', 'pl', 'pu', 'f', 'w', 'wl', 'a0', 'f0', 'a1', 'f1', 'r', 'cs', 'lc' }

local function load_breaker(name)
  local raw = call('HMGET', base .. 't:' .. name, unpack(B_FIELDS))
  local b = { name = name }
  for i, field in ipairs(B_FIELDS) do
    b[field] = field == 'pl' and raw[i] or tonumber(raw[i] or nil)
  end
  for _, field in ipairs({ 's', 'e', 'u', 'f', 'a0', 'f0', 'a1', 'f1', 'r', 'lc' }) do
    b[field] = b[field] or 0
  end
  return b
end

local function save_breaker(b, keep)
  local key = base .. 't:' .. b.name
  local set, gone = {}, {}
  for _, field in ipairs(B_FIELDS) do
    local value = b[field]
    if value then
      set[#set + 1] = field
      set[#set + 1] = type(value) == 'number' and digits(value) or value
    else
      gone[#gone + 1] = field
    end
  end
  call('HSET', key, unpack(set))
  if #gone > 0 then
    call('HDEL', key, unpack(gone))
  end
  call('PEXPIRE', key, keep)
end

-- Whether an attempt may start: 'free', 'probe', or 'refused' and until when.
local function admission(b)
  if b.s == CLOSED then
    return 'free'
  end
  if b.s == HALF_OPEN then
    if b.pl and b.pu > now then
      return 'refused', b.pu
    end
    return 'probe'
  end
  if b.u > now then
    return 'refused', b.u
  end
  return 'probe'
end

-- Changes the state; the change as one number, 0 for none.
local function become(b, to)
  local from = b.s
  b.s = to
  return from == to and 0 or from * 3 + to + 1
end

local function threshold(rules)
  return max(rules.fail_threshold, rules.concurrency * 2, 1)
end

local function open_time(rules, streak)
  local cap = max(rules.max_cooldown, rules.cooldown)
  return min(rules.cooldown * 2 ^ min(max(streak - 1, 0), 64), cap)
end

local function open(b, length)
  b.e = b.e + 1
  b.u = now + length
  b.lc = length
  b.pl, b.pu, b.cs = nil, nil, nil
  return become(b, OPEN)
end

local function reopen(b, rules)
  b.r = b.r + 1
  return open(b, open_time(rules, b.r))
end

local function force_open(b, rules)
  if b.s == OPEN then
    b.u = max(b.u, now + open_time(rules, 0))
    return 0
  end
  return open(b, open_time(rules, 0))
end

local function sample(b, rules, failed)
  local half = max(floor(rules.window / 2), 1)
  local id = floor(now / half)
  if b.w and b.wl ~= half then
    b.a0, b.f0, b.a1, b.f1 = b.a0 + b.a1, b.f0 + b.f1, 0, 0
  elseif b.w and b.w + 1 == id then
    b.a0, b.f0, b.a1, b.f1 = 0, 0, b.a0, b.f0
  elseif b.w and b.w ~= id then
    b.a0, b.f0, b.a1, b.f1 = 0, 0, 0, 0
  end
  b.w, b.wl = id, half
  b.a0 = b.a0 + 1
  b.f0 = b.f0 + (failed and 1 or 0)
end

-- Whether the window convicts, whether it acquits.
local function verdict(b, rules)
  local samples = b.a0 + b.a1
  if samples < rules.min_calls then
    return false, false
  end
  local bad = (b.f0 + b.f1) * 1000000 >= rules.fail_rate * samples
  return bad, not bad
end

local function record_closed(b, evidence, rules)
  if evidence == 'dead' then
    return force_open(b, rules)
  end
  if evidence == 'success' then
    sample(b, rules, false)
    b.f = 0
    if b.cs and max(now - b.cs, 0) >= b.lc * 2 then
      b.r = 0
    end
    return 0
  end
  sample(b, rules, true)
  b.f = b.f + 1
  local bad, good = verdict(b, rules)
  if bad then
    b.f = threshold(rules)
    return reopen(b, rules)
  end
  if b.f >= threshold(rules) and not good then
    return open(b, open_time(rules, 0))
  end
  return 0
end

local function record_half_open(b, lease, evidence, rules)
  if evidence == 'success' then
    sample(b, rules, false)
    b.f = 0
    b.pl, b.pu = nil, nil
    b.cs = now
    return become(b, CLOSED)
  end
  if b.pl ~= lease then
    return 0
  end
  if evidence == 'neutral' then
    b.pl, b.pu = nil, nil
    return 0
  end
  sample(b, rules, true)
  b.f = b.f + 1
  return reopen(b, rules)
end

---------------------------------------------------------------------------------------- rests, buckets (G12-G15)

-- A bucket's fields: u and r, its level in units and sixty-millionths of one; at, when that was; l, under which limit.
local S_FIELDS = { 'rest', 'qu', 'qr', 'qa', 'ql', 'tu', 'tr', 'ta', 'tl' }

local function load_source(name)
  local raw = call('HMGET', base .. 's:' .. name, unpack(S_FIELDS))
  local s = { name = name }
  for i, field in ipairs(S_FIELDS) do
    s[field] = tonumber(raw[i] or nil)
  end
  return s
end

local function bucket_level(s, b, limit)
  local held = s[b .. 'l']
  if not held then
    return limit, 0
  end
  local u, r = s[b .. 'u'], s[b .. 'r']
  -- Six minutes fill any bucket, however much it owes.
  local elapsed = min(max(now - s[b .. 'a'], 0), (MAX_DEBT_MINUTES + 1) * MINUTE)
  local units, rest = muldiv(elapsed, held, MINUTE)
  u, r = u + units, r + rest
  if r >= MINUTE then
    u, r = u + 1, r - MINUTE
  end
  if u >= held then
    u, r = held, 0
  end
  if held ~= limit then
    u, r = muldiv(u, limit, held), 0
  end
  return u, r
end

-- When so much can be taken.
local function bucket_opens(s, b, limit, cost)
  if limit == 0 then
    return now
  end
  local u, r = bucket_level(s, b, limit)
  local short = min(cost, limit) - u
  if short <= 0 then
    return now
  end
  local whole, rest = muldiv(short, MINUTE, limit)
  return now + whole - floor((r - rest) / limit)
end

-- Adds units, or takes them, and writes the bucket down.
local function bucket_shift(s, b, limit, units)
  if limit == 0 then
    return
  end
  local u, r = bucket_level(s, b, limit)
  u = u + units
  if u >= limit then
    u, r = limit, 0
  elseif u < -MAX_DEBT_MINUTES * limit then
    u, r = -MAX_DEBT_MINUTES * limit, 0
  end
  call('HSET', base .. 's:' .. s.name,
    b .. 'u', digits(u), b .. 'r', digits(r), b .. 'a', digits(now), b .. 'l', digits(limit))
  s[b .. 'u'], s[b .. 'r'], s[b .. 'a'], s[b .. 'l'] = u, r, now, limit
end

---------------------------------------------------------------------------------------------------------- leases

-- Takes a lease out of the book. Nothing for one that is unknown or over.
local function take_lease(lease)
  local key = base .. 'l:' .. lease
  local raw = call('GET', key)
  if not raw then
    return nil
  end
  call('DEL', key)
  local expires, epoch, ttl, tokens, length, names = string.match(raw, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  length = tonumber(length)
  local held = {
    lease = lease, expires = tonumber(expires), epoch = tonumber(epoch), ttl = tonumber(ttl), tokens = tonumber(tokens),
    source = string.sub(names, 1, length), target = string.sub(names, length + 1),
  }
  call('ZREM', base .. 'i:' .. held.source, lease)
  if held.expires <= now then
    return nil
  end
  return held
end

local function write_lease(held)
  local names = digits(#held.source) .. ' ' .. held.source .. held.target
  local fields = { digits(held.expires), digits(held.epoch), digits(held.ttl), digits(held.tokens), names }
  -- The store's own TTL only sweeps up after gateways that died.
  local px = digits(floor(held.ttl / 500) + 60000)
  call('SET', base .. 'l:' .. held.lease, table.concat(fields, ' '), 'PX', px)
end

local function book_place(held, keep)
  local key = base .. 'i:' .. held.source
  call('ZREMRANGEBYSCORE', key, '-inf', digits(now))
  call('ZADD', key, digits(held.expires), held.lease)
  call('PEXPIRE', key, keep)
end

local function inflight(source)
  local key = base .. 'i:' .. source
  call('ZREMRANGEBYSCORE', key, '-inf', digits(now))
  return call('ZCARD', key)
end

------------------------------------------------------------------------------------------------------- admission

local function read_candidate()
  return {
    target = text(), source = text(), account = text(),
    concurrency = number(), rpm = number(), tpm = number(),
    tier = number(), fresh = text() == '1', health = number(), paced = text() == '1', behind = text() == '1',
    hold = text(), backoff = number(),
  }
end

-- What stands in a candidate's way, and when that ends by itself.
local function examine(admit, c, sources)
  local b = load_breaker(c.target)
  c.breaker = b
  local entry, opens = admission(b)
  if entry == 'refused' then
    return 'B', opens
  end
  c.probe = entry == 'probe'
  local s = sources[c.source] or load_source(c.source)
  sources[c.source] = s
  c.state = s
  local rest = max(s.rest or 0, tonumber(call('GET', base .. 'a:' .. c.account) or nil) or 0)
  if rest > now then
    return 'R', rest
  end
  if c.backoff > 0 then
    return 'O', now + c.backoff
  end
  if c.paced then
    return 'P', NEVER
  end
  if c.concurrency > 0 and inflight(c.source) >= c.concurrency then
    return 'C', NEVER
  end
  local requests = bucket_opens(s, 'q', c.rpm, 1)
  if requests > now then
    return 'Q', requests
  end
  if c.tpm > 0 and c.behind then
    return 'T', NEVER
  end
  local tokens = bucket_opens(s, 't', c.tpm, admit.tokens)
  if tokens > now then
    return 'T', tokens
  end
  return 'A', now
end

local function credible(w, admit, c)
  if not w.resting then
    return true
  end
  return c.fresh and (c.tier ~= w.bar_tier or c.health * 1000000 >= w.bar_health * admit.credible)
end

local REASON = { P = 'paced', C = 'full', Q = 'full', T = 'full' }

-- Takes note of what was found; the verdict as it stands in this walk.
local function pass(w, admit, c, found, opens)
  local in_reach = opens - now <= admit.wait
  if found == 'B' or found == 'R' or found == 'Q' or found == 'T' then
    w.soonest = min(w.soonest, opens)
  end
  local stands_in = credible(w, admit, c)
  if found ~= 'R' and found ~= 'B' and not stands_in then
    return 'N'
  end
  if found == 'A' then
    return found
  elseif found == 'B' then
    w.incurable = w.incurable == 'nothing' and 'breaker' or w.incurable
  elseif found == 'R' and in_reach then
    w.curable = w.curable or 'resting'
    local same = w.bar_tier == c.tier and w.bar_health or 0
    w.resting, w.bar_tier, w.bar_health = true, c.tier, max(same, c.health)
  elseif found == 'R' then
    w.incurable = 'resting'
  elseif found == 'O' and in_reach then
    w.backoff = true
    if c.hold == 'tier' then
      w.held_tier = c.tier
    elseif c.hold == 'call' then
      w.held = true
    end
  elseif found == 'O' then
    w.incurable = w.incurable == 'resting' and w.incurable or 'backoff'
  else
    w.curable = w.curable or REASON[found]
  end
  if in_reach and stands_in then
    w.after = min(w.after, opens)
  end
  return found
end

local function take(admit, c)
  local s, b = c.state, c.breaker
  bucket_shift(s, 'q', c.rpm, -1)
  bucket_shift(s, 't', c.tpm, -admit.tokens)
  if c.rpm > 0 or c.tpm > 0 then
    call('PEXPIRE', base .. 's:' .. c.source, admit.keep)
  end
  local change = 0
  if c.probe then
    b.pl, b.pu = admit.lease, now + min(admit.ttl, admit.probe_ttl)
    change = become(b, HALF_OPEN)
    save_breaker(b, admit.keep)
  end
  local held = {
    lease = admit.lease, expires = now + admit.ttl, epoch = b.e, ttl = admit.ttl, tokens = admit.tokens,
    source = c.source, target = c.target,
  }
  write_lease(held)
  book_place(held, admit.keep)
  return change
end

-- The states of the breakers that were looked at, less the closed ones: 'index:state:what is left of the open time'.
local function news(seen)
  local out = {}
  for _, c in ipairs(seen) do
    local b = c.breaker
    if b and b.s ~= CLOSED then
      local left = b.s == OPEN and max(b.u - now, 0) or 0
      out[#out + 1] = digits(c.index) .. ':' .. digits(b.s) .. ':' .. digits(left)
    end
  end
  return #out > 0 and table.concat(out, ',') or '-'
end

local function duration(time)
  return time == NEVER and '-' or digits(time - now)
end

local function run_admit()
  local admit = {
    keep = text(), lease = text(), ttl = number(), tokens = number(), wait = number(), credible = number(),
    probe_ttl = number(),
  }
  local w = { bar_tier = 0, bar_health = 0, incurable = 'nothing', after = NEVER, soonest = NEVER }
  local count, sources, seen, verdicts = number(), {}, {}, {}
  for index = 0, count - 1 do
    local c = read_candidate()
    c.index = index
    seen[#seen + 1] = c
    if w.held or w.held_tier == c.tier then
      verdicts[#verdicts + 1] = credible(w, admit, c) and '.' or 'N'
    else
      local found = pass(w, admit, c, examine(admit, c, sources))
      verdicts[#verdicts + 1] = found
      if found == 'A' then
        local change = take(admit, c)
        return table.concat({
          'A', digits(index), c.probe and '1' or '0', digits(change), table.concat(verdicts), news(seen),
        }, ' ')
      end
    end
  end
  local why = w.curable or (w.backoff and 'backoff') or w.incurable
  local after = (w.curable or w.backoff) and w.after or NEVER
  local found = #verdicts > 0 and table.concat(verdicts) or '-'
  return table.concat({ 'D', why, duration(after), duration(w.soonest), found, news(seen) }, ' ')
end

-------------------------------------------------------------------------------------------------- settle and the rest

local function run_settle()
  local keep, lease, evidence, scope, span, used = text(), text(), text(), text(), number(), number()
  local account, tpm = text(), number()
  local rules = {
    concurrency = number(), fail_threshold = number(), min_calls = number(), fail_rate = number(), window = number(),
    cooldown = number(), max_cooldown = number(),
  }
  local held = take_lease(lease)
  if not held then
    return 'S 0 0'
  end
  local s = load_source(held.source)
  local touched = false
  if used and tpm > 0 then
    bucket_shift(s, 't', tpm, held.tokens - used)
    touched = true
  end
  if scope ~= '' then
    local till = now + min(span, DAY)
    if scope == 'account' then
      local key = base .. 'a:' .. account
      till = max(till, tonumber(call('GET', key) or nil) or 0)
      call('SET', key, digits(till), 'PX', keep)
    else
      call('HSET', base .. 's:' .. held.source, 'rest', digits(max(till, s.rest or 0)))
      touched = true
    end
  end
  if touched then
    call('PEXPIRE', base .. 's:' .. held.source, keep)
  end
  local b = load_breaker(held.target)
  if held.epoch ~= b.e then
    return 'S 0 0'
  end
  local change = 0
  if b.s == CLOSED and evidence ~= 'neutral' then
    change = record_closed(b, evidence, rules)
    save_breaker(b, keep)
  elseif b.s == HALF_OPEN then
    change = record_half_open(b, lease, evidence, rules)
    save_breaker(b, keep)
  end
  if evidence == 'dead' then
    for _ = 1, number() do
      local other = text()
      if other ~= held.target then
        local o = load_breaker(other)
        force_open(o, rules)
        save_breaker(o, keep)
      end
    end
  end
  return 'S ' .. digits(change) .. ' ' .. digits(b.s == OPEN and max(b.u - now, 0) or 0)
end

local function run_renew()
  local keep, lease = text(), text()
  local held = take_lease(lease)
  if held then
    held.expires = now + held.ttl
    write_lease(held)
    book_place(held, keep)
  end
  return 'K'
end

local function run_release()
  local keep, lease, rpm, tpm = text(), text(), number(), number()
  local held = take_lease(lease)
  if not held then
    return 'K'
  end
  local b = load_breaker(held.target)
  if b.pl == lease then
    b.pl, b.pu = nil, nil
    b.u = now
    save_breaker(b, keep)
  end
  local s = load_source(held.source)
  bucket_shift(s, 'q', rpm, 1)
  bucket_shift(s, 't', tpm, held.tokens)
  if rpm > 0 or tpm > 0 then
    call('PEXPIRE', base .. 's:' .. held.source, keep)
  end
  return 'K'
end

local commands = { admit = run_admit, settle = run_settle, renew = run_renew, release = run_release }
return commands[text()]()
