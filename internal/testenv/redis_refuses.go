package testenv

// RefusesSets, before a script of a shared exchange, makes the server refuse every third SET of it, as a
// server may that counts its memory during a script. The key "refused" counts all of them.
const RefusesSets = `
local redis = (function(real)
  local function refuse(name)
    if name ~= 'SET' or #KEYS == 1 then return false end
    return real.call('INCR', 'refused') % 3 == 0
  end
  local text = 'OOM the memory is full'
  return {
    call = function(...) if refuse(...) then error(text) end return real.call(...) end,
    pcall = function(...) if refuse(...) then return {err = text} end return real.pcall(...) end,
  }
end)(redis)
`
