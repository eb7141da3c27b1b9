-- Ends a script that has the table in common.lua, and whose own text is the function general.

local done, answer = pcall(general)
if not done then answer = failure(answer) end
return answer
